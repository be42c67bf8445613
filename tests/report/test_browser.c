/* The pages of reports and plans in a real browser, at desktop and phone widths, light, dark and in print. An
 * outer page embeds them in frames, inspects them with a script and writes down what it finds. Skipped if
 * Chromium is not installed. */
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "plan/search_space.h"
#include "report/compressed.h"
#include "report/page.h"
#include "report/page_plan.h"
#include "test.h"

enum { RUNS = 4, RANKS = 4, STEPS = 30 };

/* ---- a comparison with everything that a page can show ---- */

static void write_file(const char *dir, const char *name, const char *text, size_t size) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_replace(path, text, size));
}

static void write_summary(const char *dir, int run, int ranks) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fprintf(
        out,
        "{\"steps\": %d, \"loss_last\": 4.5, \"val_loss\": 4.25, \"runtime_s\": %d, \"tokens_per_s\": %d, "
        "\"samples_per_s\": %d, \"utilization\": 0.5, \"mfu\": 0.25, \"bubble\": 0.125, \"params_total\": "
        "1000000, \"statistical_efficiency\": 0.5, \"goodput\": 50, \"layout\": {\"ranks\": %d, \"dp\": %d, "
        "\"pp\": 2, \"batch\": %d, \"precision\": \"fp32\"}, \"ranks\": [",
        STEPS, 100 + run, 100000 * ranks + 1000 * run, 1000 * ranks, ranks, ranks / 2, run < 3 ? 16 : 32);
    for (int r = 0; r < ranks; r++)
        fprintf(
            out,
            "%s{\"peak_bytes\": {\"params\": 400, \"grads\": 300, \"optimizer\": 500, \"activations\": %d, "
            "\"total\": %d}, \"comm_bytes\": {\"total\": 70}, \"phases\": {\"compute_s\": 3, "
            "\"wait_data_s\": "
            "0.5, \"wait_pipeline_s\": 1}}",
            r ? ", " : "", 100 * r + 100, 1300 + 90 * r);
    fputs("]}", out);
    fclose(out);
    write_file(dir, "summary.json", text, size);
    free(text);
}

static void write_trace(const char *dir, int ranks) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fputs("{\"traceEvents\":[{\"ph\":\"M\",\"pid\":0,\"name\":\"x\"}", out);
    for (int r = 0; r < ranks; r++) {
        fprintf(
            out,
            ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"name\":\"step 2\",\"cat\":\"step\",\"ts\":0,\"dur\":100,"
            "\"args\":{\"step\":2}}",
            r);
        for (int m = 0; m < 4; m++)
            fprintf(out,
                    ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"name\":\"F%d\",\"cat\":\"forward\",\"ts\":%d,"
                    "\"dur\":8}"
                    ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":0,\"name\":\"B%d\",\"cat\":\"backward\",\"ts\":%d,"
                    "\"dur\":12}",
                    r, m, 20 * m, r, m, 20 * m + 8);
    }
    fputs("]}", out);
    fclose(out);
    write_file(dir, "trace.json", text, size);
    free(text);
}

static void add_run(Results *results, const char *place, const char *name, int run) {
    char dir[160], line[192];
    char *text = NULL;
    size_t size;
    Run *added;
    int ranks = run ? RANKS : 2;
    snprintf(dir, sizeof dir, "%s/run-%d", place, run);
    assert_ok(dir_make(dir));
    write_summary(dir, run, ranks);
    write_trace(dir, ranks);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (int step = 1; step <= STEPS; step++) {
        snprintf(
            line, sizeof line,
            "{\"step\":%d,\"loss\":%.6f,\"tokens\":%d,\"elapsed_s\":%d}\n{\"step\":%d,\"val_loss\":%.6f}\n",
            step, 5 + 1e-5 * run + 1.0 / step, 100 * step, (run + 1) * step, step, 5 + 1.5 / step);
        fputs(line, out);
    }
    fclose(out);
    write_file(dir, "metrics.jsonl", text, size);
    free(text);
    assert_ok(results_add(results, name, dir, &added));
    assert_ok(run_look(added));
}

static void compare_all(Results *results, const char *place) {
    static const char *const names[RUNS] = {
        "data parallel", "pipeline of two stages with a name that goes on for longer than a phone is wide",
        "averylongnamewithoutasinglespaceinitthatnobrowsercanbreakanywhereatall", "<b> & batch 32"};
    Run *failed;
    for (int i = 0; i < RUNS; i++) add_run(results, place, names[i], i);
    assert_ok(results_add(results, "large", "/nowhere", &failed));
    failed->state = RUN_FAILED;
    failed->error = strdup("out of memory: 512 GB more are needed, which this machine does not have");
    for (int i = 0; i < RUNS; i++)
        results->runs[i].published =
            json_pack("{s:f, s:f, s:f, s:f, s:s}", "samples_per_s", 900. * i + 1, "val_loss", 4.125,
                      "utilization", 0.5, "goodput", 1e-3, "hardware", "16 cards with a rather long name");
    failed->published = json_pack("{s:s}", "outcome", "out of memory");
    run_summary_replace(&results->runs[1].prediction,
                        json_pack("{s:s, s:s, s:f}", "predicted", "a-cluster-of-slates", "program",
                                  "Another program (2019)", "samples_per_s", 2000.));
    results->study =
        json_pack("{s:s, s:[{s:s, s:s, s:s, s:s, s:s}]}", "title", "A study of slates", "claims", "text",
                  "A claim that takes more than one line on a phone, being so long", "figure",
                  "samples_per_s", "run", "data parallel", "than", "<b> & batch 32", "relation", "higher");
    results->title = strdup("a-comparison-with-a-rather-long-name-of-its-own-to-see-it-break");
    results->about = strdup("What it is about, in a sentence that takes more than one line on any screen.");
}

/* ---- inspecting the page ---- */

static const char *find_browser(void) {
    static const char *const names[] = {"chromium-headless-shell", "chromium", "chromium-browser",
                                        "google-chrome", "google-chrome-stable"};
    char command[80];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", names[i]);
        if (system(command) == 0) return names[i];
    }
    return NULL;
}

/* The size of the smallest text in the plots that are shown, in pixels; 99 without plots. */
#define TEXT_SCRIPT                                                                                          \
    "function text(d){return Math.min(99,...[...d.querySelectorAll('figure svg text')].filter(e=>"           \
    "e.getBoundingClientRect().width>0).map(e=>parseFloat(getComputedStyle(e).fontSize)*"                    \
    "e.ownerSVGElement.getScreenCTM().a))}\n"

/* What the outer page checks in the frames. Contrast is between text and its background. */
static const char script[] =
    "function light(c){let v=c.match(/[\\d.]+/g).slice(0,3).map(x=>{x/=255;return x<=.03928?x/12.92:"
    "((x+.055)/1.055)**2.4});return .2126*v[0]+.7152*v[1]+.0722*v[2]}\n"
    "function behind(w,e){for(;e;e=e.parentElement){let b=w.getComputedStyle(e).backgroundColor;"
    "if(b!='rgba(0, 0, 0, 0)')return b}return 'rgb(255, 255, 255)'}\n"
    "function contrast(w,e){let a=light(w.getComputedStyle(e).color),b=light(behind(w,e));"
    "return (Math.max(a,b)+.05)/(Math.min(a,b)+.05)}\n" TEXT_SCRIPT
    "function look(f){let w=f.contentWindow,d=f.contentDocument,all=[...d.querySelectorAll('body *')];\n"
    "let n=s=>d.querySelectorAll(s).length;\n"
    "let "
    "wide=all.filter(e=>e.getBoundingClientRect().right>w.innerWidth+1&&!e.closest('.scroll')&&!e.closest('"
    "svg')"
    "&&getComputedStyle(e).position!='absolute').map(e=>e.tagName+'.'+e.className);\n"
    "let pale=[...d.querySelectorAll('p,h1,h2,h3,td,th,small,figcaption,.legend span,.chips "
    "span,.badge,.tile *,"
    ".row span,.track i,.bar i')].filter(e=>e.textContent.trim()&&contrast(w,e)<4.5)"
    ".map(e=>e.tagName+'.'+e.className+' '+contrast(w,e).toFixed(2));\n"
    "pale.push(...[...d.querySelectorAll('figure svg text')].filter(e=>{let "
    "a=light(w.getComputedStyle(e).fill),b=light(behind(w,e));return "
    "e.textContent.trim()&&(Math.max(a,b)+.05)/(Math.min(a,b)+.05)<4.5}).map(e=>'text '+e.textContent+' '+"
    "w.getComputedStyle(e).fill));\n"
    "let small=[...d.querySelectorAll('p,td,th,small,svg text')].filter(e=>e.textContent.trim()&&"
    "e.getBoundingClientRect().height>0&&e.getBoundingClientRect().height<8).length;\n"
    /* The pointer over a curve, a drag that zooms, a double-click. Nothing happens where scripts are off. */
    "let "
    "fig=d.querySelector('#loss-time'),shown=e=>e.getBoundingClientRect().width>0,"
    "svg=fig&&[...fig.querySelectorAll('svg')].find(shown),tip=()=>d.querySelector('.tip');\n"
    "let at=(type,x,y,to)=>{if(!svg)return;let "
    "r=svg.getBoundingClientRect();(to||svg).dispatchEvent(new w.PointerEvent(type,"
    "{bubbles:true,clientX:r.left+x*r.width,clientY:r.top+y*r.height}))};\n"
    "at('pointermove',.3,.5);let hover=tip()&&!tip().hidden?tip().textContent:'';\n"
    "at('pointerdown',.2,.2);at('pointermove',.5,.6);at('pointerup',.5,.6,w);\n"
    "let zoomed=n('.axes text');at('dblclick',.3,.5);let back=n('.axes text');at('pointerleave',.3,.5);\n"
    "let twice=all.map(e=>e.id).filter((id,i,ids)=>id&&ids.indexOf(id)<i);\n"
    "return {hover,zoomed,back,twice,width:d.documentElement.scrollWidth,rows:n('tbody "
    "tr'),svgs:[...d.querySelectorAll('svg')].filter(shown).length,text:text(d),curves:n('.curves path'),"
    "bars:n('.bar i'),marks:n('.bar u'),boxes:n('.track i'),dark:light(behind(w,d.body))<.2,wide,pale,small,"
    "cut:[...d.querySelectorAll('.scroll')].filter(e=>e.scrollWidth>e.clientWidth+1).length,"
    "fetched:w.performance.getEntriesByType('resource').length}}\n"
    /* A served page replaces its contents when an event comes. */
    "function follows(f){f.contentWindow.events.onmessage({data:'<main><p "
    "id=\"fresh\">new</p></main>'});return "
    "f.contentDocument.querySelectorAll('main').length==1&&!!f.contentDocument.querySelector('main "
    "#fresh')}\n"
    "onload=()=>{out.textContent='LOOK'+JSON.stringify([look(desktop),look(phone),look(plain),look(tablet),"
    "follows(live)])"
    "+'KOOL'}\n";

static void put_frame(FILE *out, const char *id, int width, bool scripts, const char *html) {
    const char *from = strstr(html, "<script>"), *end = from ? strstr(from, "</script>") : NULL;
    fprintf(out, "<iframe id=\"%s\" style=\"border:0;width:%dpx;height:2000px\" srcdoc=\"", id, width);
    for (; *html; html++) {
        if (!scripts && html == from) html = end;
        if (*html == '"')
            fputs("&quot;", out);
        else if (*html == '&')
            fputs("&amp;", out);
        else
            fputc(*html, out);
    }
    fputs("\"></iframe>\n", out);
}

/* The page as it is served, with a stand-in for the connection. */
static void put_live(FILE *out, const char *html) {
    static const char stub[] =
        "<body data-live><script>class EventSource{constructor(){window.events=this}}</script>";
    const char *body = strstr(html, "<body>");
    assert_non_null(body);
    char *served = NULL;
    assert_true(asprintf(&served, "%.*s%s%s", (int)(body - html), html, stub, body + strlen("<body>")) > 0);
    put_frame(out, "live", 1200, true, served);
    free(served);
}

static void slurp(const char *path, char **ret_text) {
    size_t size;
    assert_ok(file_read(path, 1 << 26, ret_text, &size));
}

static json_t *look(const char *browser, const char *place, bool dark) {
    char command[1024], path[160];
    snprintf(
        command, sizeof command,
        "timeout 60 %s --headless --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr %s "
        "--user-data-dir=%s/profile "
        "--dump-dom file://%s/outer.html >%s/dom 2>%s/said",
        browser, dark ? "--blink-settings=preferredColorScheme=0" : "", place, place, place, place);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/said", place);
    char *said = NULL, *dom = NULL;
    slurp(path, &said);
    if (strstr(said, "CONSOLE")) fail_msg("messages on the console: %s", strstr(said, "CONSOLE"));
    free(said);
    snprintf(path, sizeof path, "%s/dom", place);
    slurp(path, &dom);
    const char *from = strstr(dom, "LOOK["), *to = strstr(dom, "]KOOL");
    assert_true(from && to && to > from);
    json_t *seen = NULL;
    assert_ok(json_parse(from + 4, (size_t)(to + 1 - from - 4), "the page", &seen));
    free(dom);
    return seen;
}

static json_int_t count_of(const json_t *seen, const char *key) {
    return json_integer_value(json_object_get(seen, key));
}

static void assert_none(const json_t *seen, const char *key) {
    const json_t *list = json_object_get(seen, key);
    assert_true(json_is_array(list));
    if (json_array_size(list)) fail_msg("%s: %s", key, json_string_value(json_array_get(list, 0)));
}

/* The text of plots has at least that many pixels. */
static void check_text(const json_t *seen, double least) {
    double text = json_number_value(json_object_get(seen, "text"));
    if (!(text >= least)) fail_msg("text of %.1f pixels in a plot", text);
}

/* What holds for every page. */
static void check_any(const json_t *seen, int width, bool dark) {
    assert_int_equal(count_of(seen, "width"), width);
    assert_int_equal(json_is_true(json_object_get(seen, "dark")), dark);
    assert_int_equal(count_of(seen, "fetched"), 0);
    assert_int_equal(count_of(seen, "small"), 0);
    assert_int_equal(count_of(seen, "cut"), 0); /* no part of the table is clipped */
    assert_none(seen, "wide");
    assert_none(seen, "twice"); /* ids */
    assert_none(seen, "pale");
    check_text(seen, 11);
}

static void check(const json_t *seen, int width, bool dark) {
    /* The results, then published and measured values of each run and one prediction. */
    assert_int_equal(count_of(seen, "rows"), RUNS + 1 + 2 * (RUNS + 1) + 1);
    assert_int_equal(count_of(seen, "svgs"), 8); /* speed, losses, batches, ranks */
    assert_true(count_of(seen, "curves") >= 2 * RUNS);
    assert_int_equal(count_of(seen, "marks"), 2 + 3 * RANKS); /* a memory bar for each rank */
    assert_int_equal(count_of(seen, "boxes"), 8 * (2 + 3 * RANKS));
    assert_true(count_of(seen, "bars") > count_of(seen, "marks"));
    check_any(seen, width, dark);
}

/* The script shows values and zooms; without it, nothing else is missing. */
static void check_script(const json_t *with, const json_t *without) {
    const char *hover = json_string_value(json_object_get(with, "hover"));
    assert_non_null(hover);
    assert_non_null(strstr(hover, " seconds since the start"));
    assert_true(count_of(with, "zoomed") > 4);
    assert_int_equal(count_of(with, "back"), 0);
    assert_string_equal(json_string_value(json_object_get(without, "hover")), "");
    assert_int_equal(count_of(without, "zoomed"), 0);
}

/* ---- print ---- */

/* A4 with the style sheet's margins, in CSS pixels. */
enum { PAPER_WIDTH = 703, PAPER_HEIGHT = 1031 };

/* What the outer page checks in the printed frame, whose pages are columns side by side: that nothing is
 * wider than a page, that rows and charts are on one page, and headings and captions on that of what follows.
 */
static const char print_script[] =
    "function pages(e){return [...new Set([...e.getClientRects()].filter(r=>r.width&&r.height)"
    ".map(r=>Math.floor((r.left+1)/W)))]}\n"
    "function name(e){return e.tagName+'.'+e.className+' '+e.textContent.slice(0,40)}\n" TEXT_SCRIPT
    "function look(f){let d=f.contentDocument,all=[...d.querySelectorAll('main "
    "*')].filter(e=>!e.closest('svg'));\n"
    "let "
    "cut=all.filter(e=>[...e.getClientRects()].some(r=>r.width&&r.right>(Math.floor((r.left+1)/W)+1)*W+1))"
    ".map(name);\n"
    "let split=[...d.querySelectorAll('h1,h2,h3,tr,figure,.row,.line,.tile,dl,.legend,.lead,figcaption')]"
    ".filter(e=>pages(e).length>1).map(name);\n"
    "let alone=[...d.querySelectorAll('h2,h3,.lead,.legend,figcaption,thead')].filter(e=>{let "
    "n=e.nextElementSibling;while(n&&!pages(n).length)n=n.nextElementSibling;"
    "return n&&pages(n)[0]!=pages(e)[0]}).map(name);\n"
    "return {cut,split,alone,text:text(d),pages:Math.max(...all.flatMap(pages))+1,seen:all.length}}\n"
    "onload=()=>{out.textContent='LOOK'+JSON.stringify([look(paper)])+'KOOL'}\n";

/* The page with the rules for print applied to the screen. */
static void put_paper(FILE *out, const char *html) {
    char *copy = strdup(html);
    assert_non_null(copy);
    static const char *const swaps[][2] = {{"@media print {", "@media all   {"},
                                           {"@media screen and", "@media   not all and"}};
    char *text = NULL;
    size_t size;
    FILE *printed = open_memstream(&text, &size);
    assert_non_null(printed);
    for (const char *at = copy; *at;) {
        size_t swap = 0;
        while (swap < 2 && strncmp(at, swaps[swap][0], strlen(swaps[swap][0]))) swap++;
        if (swap < 2) fputs(swaps[swap][1], printed);
        if (!strncmp(at, "</style>", 8))
            fprintf(printed,
                    "body{width:%dpx}main{height:%dpx;column-width:%dpx;column-gap:0;column-fill:auto}\n",
                    PAPER_WIDTH, PAPER_HEIGHT, PAPER_WIDTH);
        if (swap < 2)
            at += strlen(swaps[swap][0]);
        else
            fputc(*at++, printed);
    }
    fclose(printed);
    put_frame(out, "paper", PAPER_WIDTH, true, text);
    free(text);
    free(copy);
}

/* Pages of the document that the browser prints. */
static int printed_pages(const char *browser, const char *place) {
    char command[1024], path[160];
    snprintf(command, sizeof command,
             "timeout 60 %s --headless --no-sandbox --disable-gpu --no-pdf-header-footer "
             "--user-data-dir=%s/profile --print-to-pdf=%s/page.pdf file://%s/page.html >/dev/null 2>&1",
             browser, place, place, place);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/page.pdf", place);
    char *pdf = NULL;
    size_t size;
    int pages = 0;
    assert_ok(file_read(path, 1 << 26, &pdf, &size));
    for (const char *at = pdf; (at = memmem(at, size - (size_t)(at - pdf), "/Type /Page", 11)); at += 11)
        pages += at[11] != 's';
    free(pdf);
    return pages;
}

/* On paper, no column is cut, no chart is split, and no heading is alone at the end of a page. */
static void check_print(const char *browser, const char *place, const char *html) {
    char outer[160];
    snprintf(outer, sizeof outer, "%s/outer.html", place);
    FILE *out = fopen(outer, "w");
    assert_non_null(out);
    fprintf(out, "<!DOCTYPE html><meta charset=\"utf-8\"><pre id=\"out\"></pre>\n");
    put_paper(out, html);
    fprintf(out, "<script>\nconst W=%d;\n%s</script>\n", PAPER_WIDTH, print_script);
    assert_int_equal(fclose(out), 0);
    json_t *list = look(browser, place, false), *seen = json_array_get(list, 0);
    assert_true(count_of(seen, "seen") > 50);
    assert_none(seen, "cut");
    assert_none(seen, "split");
    assert_none(seen, "alone");
    check_text(seen, 9.3); /* 7 points */
    /* Columns stand for pages: the browser must print about as many. */
    int columns = (int)count_of(seen, "pages"), pages = printed_pages(browser, place);
    if (abs(columns - pages) > 1) fail_msg("%d pages printed, %d expected", pages, columns);
    json_decref(list);
}

/* ---- the pages ---- */

static char *read_page(const char *place) {
    char page[160], *html = NULL;
    snprintf(page, sizeof page, "%s/page.html", place);
    slurp(page, &html);
    return html;
}

static void write_outer(const char *place, const char *html) {
    char outer[160];
    snprintf(outer, sizeof outer, "%s/outer.html", place);
    FILE *out = fopen(outer, "w");
    assert_non_null(out);
    fprintf(out, "<!DOCTYPE html><meta charset=\"utf-8\"><pre id=\"out\"></pre>\n");
    put_frame(out, "desktop", 1200, true, html);
    put_frame(out, "phone", 390, true, html);
    put_frame(out, "plain", 1200, false, html);
    put_frame(out, "tablet", 768, true, html);
    put_live(out, html);
    fprintf(out, "<script>\n%s</script>\n", script);
    assert_int_equal(fclose(out), 0);
}

static void report(void **state) {
    char place[] = "/tmp/weft-browser-XXXXXX", page[64];
    const char *browser = find_browser();
    Results results = {0};
    if (!browser) skip();
    assert_non_null(mkdtemp(place));
    compare_all(&results, place);
    snprintf(page, sizeof page, "%s/page.html", place);
    assert_ok(page_write(&results, page));
    char *html = read_page(place);
    write_outer(place, html);
    for (int dark = 0; dark < 2; dark++) {
        json_t *seen = look(browser, place, dark);
        check(json_array_get(seen, 0), 1200, dark);
        check(json_array_get(seen, 1), 390, dark);
        check(json_array_get(seen, 2), 1200, dark);
        check_text(json_array_get(seen, 3), 11);
        assert_true(json_is_true(json_array_get(seen, 4)));
        check_script(json_array_get(seen, 0), json_array_get(seen, 2));
        json_decref(seen);
    }
    check_print(browser, place, html);
    free(html);
    results_done(&results);
    assert_ok(dir_remove(place));
}

/* ---- compressed models ---- */

/* Two kinds of pruning, one round with contention, and three levels that write long texts. */
static void write_compressed(const char *dir) {
    enum { ROUNDS = 10, LEVELS = 3 };
    json_t *kinds = json_array(), *levels = json_array();
    for (int k = 0; k < 2; k++) {
        json_t *rounds = json_array();
        for (int i = 0; i < ROUNDS; i++)
            json_array_append_new(
                rounds, json_pack("{s:f, s:i, s:f, s:f, s:f, s:{s:f}}", "sparsity", 0.1 * i, "params_total",
                                  1000000 - 90000 * k * i, "val_loss", 3 + 0.01 * i * i, "val_loss_pruned",
                                  3.5, "step_ms", 100. - 8 * k * i, "load", "contention", i == 4 ? 0.5 : 0.));
        json_array_append_new(kinds, json_pack("{s:{s:s}, s:o}", "settings", "kind",
                                               k ? "all-rows" : "weights", "rounds", rounds));
    }
    json_t *pruning = json_pack("{s:o, s:{s:[s]}, s:{s:s, s:s}}", "kinds", kinds, "conclusion", "text",
                                "weights: <b>no</b> time is saved.", "study", "title", "A & B", "note",
                                "It was a projection.");
    for (int i = 0; i < LEVELS; i++)
        json_array_append_new(
            levels,
            json_pack("{s:s, s:f, s:[{s:i, s:f, s:f, s:f}], s:[s]}", "name",
                      (const char *[]){"fp32", "int8", "int4"}[i], "weights_noise", 0.01 * i, "batches",
                      "batch", 32, "seconds", 128.7 / (1 + i), "loss", 2.5, "speedup", 1. + i, "texts",
                      "The history of the city began <once> upon a time, and went on for as long as "
                      "the model had tokens to write it with, in words of incomprehensibilities."));
    json_t *quantization =
        json_pack("{s:{s:[s], s:o}}", "evaluation", "prompts", "The history of the city", "levels", levels);
    char path[160];
    snprintf(path, sizeof path, "%s/pruning.json", dir);
    assert_ok(json_write_file(path, pruning));
    snprintf(path, sizeof path, "%s/quantization.json", dir);
    assert_ok(json_write_file(path, quantization));
    json_decref(pruning);
    json_decref(quantization);
}

static void compressed(void **state) {
    char place[] = "/tmp/weft-browser-XXXXXX", page[64];
    const char *browser = find_browser(), *dir = place;
    Compressed of = {0};
    if (!browser) skip();
    assert_non_null(mkdtemp(place));
    write_compressed(place);
    assert_ok(compressed_read(&of, &dir, 1));
    snprintf(page, sizeof page, "%s/page.html", place);
    assert_ok(page_write_compressed(&of, page));
    char *html = read_page(place);
    write_outer(place, html);
    for (int dark = 0; dark < 2; dark++) {
        json_t *seen = look(browser, place, dark);
        for (size_t i = 0; i < 2; i++) {
            const json_t *frame = json_array_get(seen, i);
            check_any(frame, i ? 390 : 1200, dark);
            assert_int_equal(count_of(frame, "rows"), 2 * 10 + 3);
            assert_int_equal(count_of(frame, "svgs"), 2);
            /* By kind, and a projection; of each plot there is a narrow version. */
            assert_int_equal(count_of(frame, "curves"), 2 * (2 + 3));
        }
        json_decref(seen);
    }
    check_print(browser, place, html);
    free(html);
    compressed_done(&of);
    assert_ok(dir_remove(place));
}

/* Searches for layouts of a small model on 16 GPUs whose memory is scarce, and writes the page. */
static void write_search(const char *path, Search *search) {
    Cluster cluster;
    Plan plan = {0};
    PlanTimeline timeline = {0};
    SearchSpec spec = {.ranks = 16,
                       .base.config = {.model = {.name = "gpt2", .task = "auto", .layers = 8, .dropout = -1},
                                       .data = {.format = "auto"},
                                       .training = {.batch = 64}}};
    assert_ok(cluster_find("h100", &cluster));
    cluster.memory_bytes = cluster.reserve_bytes + 2.5e9;
    assert_ok(fit_settle(&spec.base, &cluster));
    assert_ok(search_find(search, &spec, &cluster));
    assert_true(search->count > 1);
    PlanSpec again = search_plan_spec(&spec, &search->best[0].layout);
    again.timed = again.memory_only = true;
    assert_ok(plan_init(&plan, &again));
    assert_ok(plan_timeline(&plan, &cluster, &timeline));
    PlanFacts facts = {&search->model, search->params_total, &cluster, 16, 64, search->seq, "bf16", 2.5};
    PlannedLayout first = {&plan, search->best[0], &timeline};
    assert_ok(page_write_plan(&facts, search, &first, NULL, path));
    plan_timeline_done(&timeline);
    plan_done(&plan);
}

static void check_search(const json_t *seen, int width, bool dark, const Search *search) {
    json_int_t rows = search->count;
    for (int i = 0; i < OTHER_COUNT; i++) rows += search->has_other[i];
    assert_int_equal(count_of(seen, "rows"), rows);
    assert_int_equal(count_of(seen, "svgs"), 2);
    assert_true(count_of(seen, "boxes") > 1);
    assert_true(count_of(seen, "bars") > 2 * rows);
    check_any(seen, width, dark);
}

static void search(void **state) {
    char place[] = "/tmp/weft-browser-XXXXXX", page[64];
    const char *browser = find_browser();
    Search found = {0};
    if (!browser) skip();
    assert_non_null(mkdtemp(place));
    snprintf(page, sizeof page, "%s/page.html", place);
    write_search(page, &found);
    char *html = read_page(place);
    write_outer(place, html);
    for (int dark = 0; dark < 2; dark++) {
        json_t *seen = look(browser, place, dark);
        for (size_t i = 0; i < 3; i++)
            check_search(json_array_get(seen, i), i == 1 ? 390 : 1200, dark, &found);
        check_text(json_array_get(seen, 3), 11);
        json_decref(seen);
    }
    check_print(browser, place, html);
    free(html);
    search_done(&found);
    assert_ok(dir_remove(place));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(report), cmocka_unit_test(compressed),
                                       cmocka_unit_test(search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
