/* The page's style. Colors are variables with a second set for dark pages. */
#include "report/page.h"

static const char style[] =
    ":root{--ground:#fbfbfd;--card:#fff;--text:#1c1f24;--soft:#667080;--line:#e3e6eb;--better:#0a7d48;"
    "--worse:#c0362c;--p0:#2f9e6e;--p1:#4c7be0;--p2:#9aa3b2;--p3:#f0a202;--p4:#e4682c;--p5:#d33f6a}\n"
    "@media(prefers-color-scheme:dark){:root{--ground:#14161a;--card:#1c1f25;--text:#e6e8ec;--soft:#98a1b0;"
    "--line:#2e333c;--better:#4cc98a;--worse:#ff8577;--p0:#38b27e;--p1:#6a93f0;--p2:#7c8594;--p3:#f2b134;"
    "--p4:#ee7d46;--p5:#e5577f}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--text);"
    "font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}\n"
    "main{max-width:1080px;margin:0 auto;padding:24px 16px 48px}h1{font-size:1.7rem;line-height:1.2;margin:0 "
    "0 "
    "4px}h2{font-size:1.1rem;margin:0 0 10px}p{margin:0 0 "
    "8px}.about,.note{color:var(--soft);font-size:.9rem}\n"
    "section{background:var(--card);border:1px solid "
    "var(--line);border-radius:12px;padding:16px 18px;margin-top:16px}\n"
    ".words{font-size:1.08rem;border-left:5px solid var(--p0)}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem;"
    "font-variant-numeric:tabular-nums}th,td{padding:7px 10px;text-align:right;white-space:nowrap;"
    "vertical-align:top;border-top:1px solid var(--line)}thead th{border-top:0;color:var(--soft);"
    "font-weight:600}th:first-child{text-align:left;position:sticky;left:0;background:var(--card);"
    "min-width:11em;max-width:16em;white-space:normal}td.wide{text-align:left;white-space:normal}\n"
    "section>:last-child{margin-bottom:0}small{display:block;font-weight:400;font-size:.8rem;color:var(--"
    "soft)}small.better{color:var(--better)}"
    "small.worse{color:var(--worse)}.best{font-weight:700}\n"
    ".swatch{display:inline-block;width:.75em;height:.75em;border-radius:3px;margin-right:.45em;"
    "vertical-align:baseline}.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:.85rem;"
    "color:var(--soft);margin-bottom:8px}\n"
    ".row{display:grid;grid-template-columns:minmax(7em,13em) 1fr minmax(5em,auto);gap:4px 12px;"
    "align-items:center;margin:5px 0;font-size:.9rem}.row>:last-child{text-align:right;"
    "font-variant-numeric:tabular-nums;white-space:nowrap}\n"
    ".bar{height:20px;display:flex;border-radius:5px;overflow:hidden;background:var(--line)}.bar "
    "i{display:block;"
    "height:100%}.rank{color:var(--soft);padding-left:1.2em}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:16px}"
    "figure{margin:0}figure svg{width:100%;height:auto;display:block}figcaption{font-size:.9rem;"
    "font-weight:600}\n"
    "@media(max-width:560px){.row{grid-template-columns:1fr auto}.row .bar{grid-column:1/-1;grid-row:2}"
    "section{padding:12px}body{font-size:15px}}\n";

void put_style(FILE *out) {
    fprintf(out, "<style>\n%s</style>\n", style);
}
