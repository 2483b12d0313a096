/**
 * The dashboard in Chromium with the mock of the API in its scenario `large`: bytes and first paint
 * of the first page, the start of a log of 100,000 lines, and a scroll through 2,000 deployments. A
 * long task is work of the page that blocks the person for over 50 ms.
 */
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { findChromium, repositoryRoot } from '@berth/testbed/config';
import { serveMock } from '../packages/dashboard/mock/serve.ts';
import { buildDashboard } from '../scripts/lib/dashboard.ts';

const ROUNDS = 3;
const LINES = 100_000;
const DEPLOYMENTS = 2_000;
const GOALS = { kib: 260, paintMs: 1_000, logMs: 200, taskMs: 100 };

export async function benchDashboard(): Promise<string[]> {
  const executablePath = findChromium();
  if (executablePath === undefined)
    return ['dashboard: skipped: no Chromium (Debian package chromium-headless-shell)'];
  const mock = await serveMock(
    await buildDashboard(join(repositoryRoot, '.berth', 'dashboard-of-bench')),
    { scenario: 'large' },
  );
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run'],
  });
  const all = (values: number[]): string => values.map((value) => value.toFixed(0)).join(', ');
  try {
    const first: { kib: number; paintMs: number }[] = [];
    const logs: { firstMs: number; allMs: number; taskMs: number }[] = [];
    const scrolls: { taskMs: number; rows: number }[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      first.push(await firstPage(browser, mock.url));
      logs.push(await longLog(browser, mock.url));
      scrolls.push(await longList(browser, mock.url));
    }
    return [
      `dashboard: first page: ${all(first.map(({ kib }) => kib))} KiB (goal: at most ` +
        `${GOALS.kib}), first paint after ${all(first.map(({ paintMs }) => paintMs))} ms ` +
        '(goal: at ' +
        `most ${GOALS.paintMs})`,
      `dashboard: log of ${LINES.toLocaleString('en')} lines: first lines after ` +
        `${all(logs.map(({ firstMs }) => firstMs))} ms (goal: at most ${GOALS.logMs}), all lines ` +
        `after ${all(logs.map(({ allMs }) => allMs))} ms, longest task ` +
        `${all(logs.map(({ taskMs }) => taskMs))} ms`,
      `dashboard: ${scrolls[0]?.rows ?? 0} deployments: longest task of a scroll from end to ` +
        `end ${all(scrolls.map(({ taskMs }) => taskMs))} ms (goal: at most ${GOALS.taskMs})`,
    ];
  } finally {
    await browser.close();
    await mock.stop();
  }
}

async function open(browser: Browser): Promise<Page> {
  const page = await (
    await browser.newContext({ viewport: { width: 1400, height: 900 } })
  ).newPage();
  page.setDefaultTimeout(60_000);
  await page.addInitScript(
    'window.longest = 0; new PerformanceObserver((list) => { for (const { duration } of ' +
      'list.getEntries()) window.longest = Math.max(window.longest, duration); }).observe({ ' +
      'type: "longtask", buffered: true });',
  );
  return page;
}

async function firstPage(browser: Browser, url: string): Promise<{ kib: number; paintMs: number }> {
  const page = await open(browser);
  await page.context().addCookies([{ name: 'mock_signed_out', value: '1', url }]);
  const sizes: Promise<number>[] = [];
  page.on(
    'requestfinished',
    (request) => void sizes.push(request.sizes().then(({ responseBodySize }) => responseBodySize)),
  );
  await page.goto(`${url}/projects`);
  await page.getByLabel('E-mail address').waitFor();
  await page.waitForLoadState('networkidle');
  const bytes = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
  const paintMs = await page.evaluate<number>(
    "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0",
  );
  await page.context().close();
  return { kib: bytes / 1_024, paintMs };
}

/** From the click on a deployment. The scroll height says how many lines the viewer has. */
async function longLog(
  browser: Browser,
  url: string,
): Promise<{ firstMs: number; allMs: number; taskMs: number }> {
  const page = await open(browser);
  await page.goto(`${url}/projects/explorer`);
  const link = page.getByRole('link', { name: '#14' });
  await link.hover();
  await page.waitForLoadState('networkidle', { timeout: 2_000 }).catch(() => undefined);
  await page.evaluate(
    `window.longest = 0; window.times = new Promise((resolve) => {
       let from = 0, first = 0;
       addEventListener('click', () => { from = performance.now(); requestAnimationFrame(look); }, { capture: true, once: true });
       function look() {
         const log = document.querySelector('[role=log]');
         if (first === 0 && log?.querySelector('.log-line:not(:only-child)')) first = performance.now() - from;
         if (log !== null && log.scrollHeight > ${LINES} * 10) resolve([first, performance.now() - from]);
         else requestAnimationFrame(look);
       }
     }); undefined`,
  );
  await link.click();
  const [firstMs, allMs] = await page.evaluate<[number, number]>('window.times');
  const taskMs = await page.evaluate<number>('window.longest');
  await page.context().close();
  return { firstMs, allMs, taskMs };
}

async function longList(browser: Browser, url: string): Promise<{ taskMs: number; rows: number }> {
  const page = await open(browser);
  await page.goto(`${url}/projects/shop`);
  const table = page.getByRole('table', { name: 'Deployments of shop' });
  await table.waitFor();
  const count = (): Promise<number> =>
    page.evaluate<number>(
      "Number(document.querySelector('table[aria-rowcount]')?.getAttribute('aria-rowcount') ?? " +
        "document.querySelectorAll('tbody tr').length)",
    );
  let rows = await count();
  while (rows < DEPLOYMENTS) {
    await page.getByRole('button', { name: 'Show older ones' }).click();
    const before = rows;
    await page.waitForFunction(
      "Number(document.querySelector('table[aria-rowcount]')?.getAttribute('aria-rowcount') ?? " +
        `document.querySelectorAll('tbody tr').length) > ${before}`,
    );
    rows = await count();
  }
  await page.evaluate('window.longest = 0');
  await page.evaluate(
    `new Promise((resolve) => {
       const step = () => {
         const before = scrollY;
         scrollBy(0, 600);
         if (scrollY === before) resolve(); else requestAnimationFrame(step);
       };
       scrollTo(0, 0);
       requestAnimationFrame(step);
     })`,
  );
  const taskMs = await page.evaluate<number>('window.longest');
  await page.context().close();
  return { taskMs, rows };
}
