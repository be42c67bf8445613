/* The part of the test of reports that looks at the page. */
#ifndef WEFT_TESTS_REPORT_REPORT_PAGE_H
#define WEFT_TESTS_REPORT_REPORT_PAGE_H

/* Returns the number of tests that failed. */
int page_tests(void);

#endif
