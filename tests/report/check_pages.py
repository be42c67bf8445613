#!/usr/bin/env python3
"""Check the accessibility of weft's pages with axe-core, in Chromium: desktop and phone, light and dark.

    python tests/report/check_pages.py --axe axe.min.js report.html plan.html http://localhost:8080/

axe.min.js is not part of weft; the PyPI package axe-playwright-python, among others, contains it. The checks are those of
WCAG 2.2, levels A and AA, and axe's best practices. Prints what axe finds; the exit code is 1 if it finds anything.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """
addEventListener('load', () => axe.run(document, {runOnly: %s, resultTypes: ['violations', 'incomplete']}).then((found) => {
    const keep = (list) => list.map((v) => ({id: v.id, impact: v.impact, help: v.help,
        nodes: v.nodes.map((n) => ({html: n.html.slice(0, 160), why: n.failureSummary || ''}))}));
    document.title = 'AXE' + JSON.stringify({violations: keep(found.violations), incomplete: keep(found.incomplete),
        passes: found.passes.length, version: found.testEngine.version}) + 'EXA';
}));
"""


def read(page):
    if page.startswith(("http://", "https://")):
        return urllib.request.urlopen(page).read().decode()
    return Path(page).read_text()


def check(browser, axe, html, width, dark):
    """The page's own script runs too, with a stand-in for the connection of a served page."""
    stub = "class EventSource{}"
    added = f"<script>{stub}</script><script>{axe}</script><script>{RUN % json.dumps(RULES)}</script></head>"
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "page.html"
        file.write_text(html.replace("</head>", added, 1))
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},1000",
                   "--virtual-time-budget=60000", f"--user-data-dir={place}/profile", "--dump-dom", f"file://{file}"]
        if dark:
            command.insert(1, "--blink-settings=preferredColorScheme=0")
        dom = subprocess.run(command, capture_output=True, text=True, timeout=180).stdout
    title = dom[dom.find("<title>") + 7 : dom.find("</title>")]
    if "AXE{" not in title or not title.endswith("EXA"):
        sys.exit("axe-core did not finish")
    text = title[title.index("AXE") + 3 : -3]
    for entity, plain in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, plain)
    return json.loads(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axe", required=True, help="path of axe.min.js")
    parser.add_argument("--incomplete", action="store_true", help="also print what axe cannot decide")
    parser.add_argument("pages", nargs="+")
    args = parser.parse_args()
    browser = next((name for name in BROWSERS if shutil.which(name)), None)
    if not browser:
        sys.exit("Chromium is not installed")
    axe, bad = Path(args.axe).read_text(), 0
    for page in args.pages:
        for width in (1280, 390):
            for dark in (False, True):
                found = check(browser, axe, read(page), width, dark)
                bad += len(found["violations"])
                print(f"{page}, {width} px, {'dark' if dark else 'light'}: {len(found['violations'])} violations, "
                      f"{len(found['incomplete'])} undecided, {found['passes']} rules pass (axe-core {found['version']})")
                for v in found["violations"] + (found["incomplete"] if args.incomplete else []):
                    print(f"  {v['id']} ({v['impact']}): {v['help']}, {len(v['nodes'])} elements")
                    for node in v["nodes"][:3]:
                        print(f"    {node['html']}\n      {' '.join(node['why'].split())[:300]}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
