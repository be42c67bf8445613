/* This host: its CPU, memory, and the CPU time that it has spent, whichever process used it. */
#ifndef WEFT_BASE_HOST_TIME_H
#define WEFT_BASE_HOST_TIME_H

/* Seconds since boot, summed over the cores; use differences only. */
typedef struct HostTime {
    double busy_s;  /* running any process, the kernel included */
    double steal_s; /* wanted by this virtual machine, but given to others */
} HostTime;

/* Both are NAN if the system does not report them. */
HostTime host_time(void);
/* The cores that are online. */
int host_cores(void);
double host_ram(void); /* in bytes */
/* The CPU's name, such as "Neoverse-V1", or else the architecture. */
enum { CPU_NAME = 128 };
void host_cpu(char name[CPU_NAME]);

#endif
