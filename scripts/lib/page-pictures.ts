/**
 * Pictures of every page of the dashboard in every state, with the mock of the API:
 * .berth/pictures/pages/PAGE-STATE.png. People look at them after a change of the look. The
 * findings are what a program can see: script errors and pages wider than the window.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { findChromium, repositoryRoot } from '@berth/testbed/config';
import { serveMock } from '../../packages/dashboard/mock/serve.ts';
import { buildDashboard } from './dashboard.ts';

const FOLDER = join(repositoryRoot, '.berth', 'pictures', 'pages');
const DOCS = join(repositoryRoot, 'docs', 'pictures');
const PAGES = {
  overview: '/',
  projects: '/projects',
  'new-project': '/projects/new',
  project: '/projects/explorer',
  'project-logs': '/projects/explorer/logs',
  'project-metrics': '/projects/explorer/metrics',
  'project-jobs': '/projects/explorer/jobs',
  'project-runs': '/projects/explorer/runs',
  run: '/runs/run-2',
  'project-env': '/projects/explorer/env',
  'project-data': '/projects/explorer/data',
  'project-domains': '/projects/explorer/domains',
  'project-hook': '/projects/explorer/hook',
  'project-members': '/projects/reports/members',
  'project-settings': '/projects/explorer/settings',
  'project-stopped': '/projects/wiki',
  deployment: '/deployments/dep-explorer-14',
  'deployment-failed': '/deployments/dep-shop-22',
  'deployment-copies': '/deployments/dep-reports-5',
  'deployment-ended': '/deployments/dep-labels-3',
  nodes: '/nodes',
  node: '/nodes/node-b',
  'node-drains': '/nodes/node-c',
  datasets: '/datasets',
  dataset: '/datasets/stations',
  'dataset-suspicious': '/datasets/images',
  routes: '/routes',
  activity: '/activity',
  notifications: '/notifications',
  people: '/people',
  system: '/system',
  account: '/account',
  'not-found': '/no/such/page',
} as const;
type Name = keyof typeof PAGES;
const LISTS: readonly Name[] = [
  'overview',
  'projects',
  'nodes',
  'datasets',
  'routes',
  'activity',
  'notifications',
];

type State = {
  scenario?: string;
  role?: string;
  options?: BrowserContextOptions;
  /** Default: all. */
  pages?: readonly Name[];
  /** Takes the picture without waiting for the answers. */
  unfinished?: true;
};
const WIDE = { viewport: { width: 1400, height: 900 } };
const PHONE = { viewport: { width: 360, height: 780 }, deviceScaleFactor: 2 };
const STATES: Record<string, State> = {
  light: {},
  dark: { options: { colorScheme: 'dark' } },
  phone: { options: PHONE },
  'phone-dark': { options: { ...PHONE, colorScheme: 'dark' }, pages: LISTS },
  empty: { scenario: 'empty', pages: LISTS },
  viewer: { role: 'viewer' },
  hostile: { scenario: 'hostile' },
  'hostile-phone': { scenario: 'hostile', options: PHONE },
  large: { scenario: 'large', pages: ['overview', 'projects', 'nodes', 'activity', 'deployment'] },
  waits: {
    scenario: 'slow',
    pages: ['overview', 'projects', 'project', 'deployment'],
    unfinished: true,
  },
  away: { scenario: 'away', pages: ['overview'], unfinished: true },
};

/** The pictures of README.md and docs/, for which a small window is enough. */
const IN_DOCS: Partial<Record<Name, string>> = {
  overview: 'dashboard-overview',
  projects: 'dashboard-projects',
  deployment: 'dashboard-deployment',
  'project-metrics': 'dashboard-metrics',
  'project-env': 'dashboard-env',
  node: 'dashboard-node',
  dataset: 'dashboard-dataset',
  notifications: 'dashboard-notifications',
};

async function open(
  browser: Browser,
  url: string,
  state: State,
  findings: string[],
  what: string,
): Promise<Page> {
  const context = await browser.newContext({
    ...WIDE,
    colorScheme: 'light',
    reducedMotion: 'reduce',
    ...state.options,
  });
  const cookies = { mock_scenario: state.scenario, mock_role: state.role };
  await context.addCookies(
    Object.entries(cookies).flatMap(([name, value]) =>
      value === undefined ? [] : [{ name, value, url }],
    ),
  );
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on('pageerror', (error) => findings.push(`${what}: ${String(error)}`));
  return page;
}

async function settled(page: Page): Promise<void> {
  await page.locator('h1').first().waitFor();
  // The next lines wait for answers and fonts, and for what the page draws from them.
  await page.waitForFunction(
    "document.querySelector('[data-skeleton]') === null && !/(^|\\n)(Loading |No lines " +
      'yet)/.test(document.body.innerText)',
  );
  await page.evaluate('document.fonts.ready');
  await page.evaluate(
    'new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))',
  );
}

/** `docs`: only the pictures of the docs. Returns what should be fixed. */
export async function takePagePictures(
  docs: boolean,
): Promise<{ count: number; folder: string; findings: string[] }> {
  const executablePath = findChromium();
  if (executablePath === undefined)
    throw new Error('pictures of pages need Chromium: Debian package chromium-headless-shell');
  const mock = await serveMock(
    await buildDashboard(join(repositoryRoot, '.berth', 'dashboard-of-pictures')),
  );
  const browser = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run'],
  });
  const findings: string[] = [];
  let count = 0;
  try {
    if (docs) {
      const page = await open(browser, mock.url, {}, findings, 'docs');
      await page.setViewportSize({ width: 1200, height: 760 });
      for (const [name, file] of Object.entries(IN_DOCS) as [Name, string][]) {
        await page.goto(mock.url + PAGES[name]);
        await settled(page);
        await page.screenshot({ path: join(DOCS, `${file}.png`) });
        count += 1;
      }
      return { count, folder: DOCS, findings };
    }
    await rm(FOLDER, { recursive: true, force: true });
    await mkdir(FOLDER, { recursive: true });
    for (const [state, given] of Object.entries(STATES)) {
      const page = await open(browser, mock.url, given, findings, state);
      for (const [name, path] of Object.entries(PAGES) as [Name, string][]) {
        if (given.pages !== undefined && !given.pages.includes(name)) continue;
        // In the hostile world, the first project has another name.
        const at =
          given.scenario === 'hostile'
            ? path.replace('/projects/explorer', '/projects/p-explorer')
            : path;
        await page.goto(mock.url + at);
        if (given.unfinished === true) await page.locator('body *:visible').first().waitFor();
        else
          await settled(page).catch((error: unknown) =>
            findings.push(`${name} ${state}: ${String(error).split('\n')[0] ?? ''}`),
          );
        await page.screenshot({ path: join(FOLDER, `${name}-${state}.png`), fullPage: true });
        count += 1;
        if (await page.evaluate<boolean>('document.documentElement.scrollWidth > innerWidth + 1'))
          findings.push(`${name} ${state}: wider than the window`);
        if ((await page.title()) === '1') findings.push(`${name} ${state}: markup of a text ran`);
      }
      await page.context().close();
    }
    return { count, folder: FOLDER, findings };
  } finally {
    await browser.close();
    await mock.stop();
  }
}
