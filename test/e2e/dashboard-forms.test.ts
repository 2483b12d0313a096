/**
 * Forms of the dashboard in Chromium, with the mock of the API: errors, changes of somebody else,
 * commands to copy.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { readFile } from 'node:fs/promises';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { ProjectPatch } from '@berth/wire/project';
import { serveMock } from '../../packages/dashboard/mock/serve.ts';
import { ELSEWHERE, FORM } from '../../packages/dashboard/src/parts/project-fields.ts';
import { commandProblem } from '../known-command.ts';
import { shippedRules } from '../shipped-rules.ts';
import { buildDashboard } from '../../scripts/lib/dashboard.ts';
import { launchChromium, whyNoChromium } from './chromium.ts';

const VIEWPORT = { width: 1400, height: 900 };
const TABS = [
  'logs',
  'metrics',
  'jobs',
  'runs',
  'console',
  'env',
  'data',
  'domains',
  'hook',
  'members',
  'settings',
];
/** Values for the parameters of the addresses. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  '/projects/$name': ['/projects/explorer'],
  '/projects/$name/$tab': TABS.map((tab) => `/projects/explorer/${tab}`),
  '/deployments/$id': ['/deployments/dep-explorer-14'],
  '/runs/$id': ['/runs/run-1', '/runs/run-2'],
  '/nodes/$name': ['a', 'b', 'c', 'd'].map((name) => `/nodes/node-${name}`),
  '/datasets/$name': ['/datasets/stations'],
  '/activity': ['/activity', '/activity?kind=deployment', '/activity?kind=audit'],
};

/** A change of the dashboard: its file, the name of its helper (`call` without one), its route. */
type ChangeName = `${string} ${string} ${RouteName}`;
/**
 * The changes in the sources: `const NAME = useApiMutation('ROUTE'`, and requests without that helper
 * that change something.
 */
function changesOfSource(): string[] {
  const src = join(repositoryRoot, 'packages/dashboard/src');
  return readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file))
    .flatMap((file) => {
      const text = readFileSync(join(src, file), 'utf8');
      const found = [
        ...text.matchAll(/(?:const (\w+) = useApiMutation|\b(?:call|exchange))\(\s*'(\w+)'/g),
      ];
      expect(found.filter(([, name]) => name !== undefined).length, `${file}: changes`).toBe(
        [...text.matchAll(/\buseApiMutation\(/g)].length,
      );
      return found
        .filter(([, , route]) => ROUTES[route as RouteName].method !== 'GET')
        .map(
          ([, name = 'call', route = '']) =>
            `${basename(file).replace(/\.tsx?$/, '')} ${name} ${route}`,
        );
    })
    .toSorted();
}

describe.skipIf(whyNoChromium() !== undefined)('forms of the dashboard', () => {
  let chromium: Awaited<ReturnType<typeof launchChromium>>;
  let folder = '';
  let mock: Awaited<ReturnType<typeof serveMock>>;
  let page: Page;
  beforeAll(async () => {
    folder = await buildDashboard(join(repositoryRoot, '.berth', 'dashboard-of-forms'));
    chromium = await launchChromium();
    page = await chromium.browser.newPage({ viewport: VIEWPORT });
    page.setDefaultTimeout(20_000);
  }, 120_000);
  afterAll(() => chromium?.close());
  /** Removes what a test left in the page; a page of its own for each test takes twice the time. */
  const clean = async (): Promise<void> => {
    mock.answerInstead(() => undefined);
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.context().clearCookies();
    await page.evaluate(() => {
      localStorage.clear();
      sessionStorage.clear();
    });
    await page.setViewportSize(VIEWPORT);
  };
  const start = async () => {
    mock = await serveMock(folder);
    return async () => {
      await clean();
      await page.goto('about:blank');
      await mock.stop();
    };
  };
  const open = async (path: string): Promise<void> => {
    typed = [];
    await page.goto(mock.url + path);
    await page.locator('h1').waitFor();
    await waitFor(
      'the page has loaded',
      async () =>
        (await page.getByText(/^Loading /).count()) +
          (await page.locator('[data-skeleton]').count()) ===
        0,
    );
  };
  /** A required field has a star after its label. */
  const field = (label: string) => page.getByLabel(new RegExp(`^${label}( \\*)?$`)).first();
  /** The texts and choices of the person since the page opened. */
  let typed: [label: string, value: string][] = [];
  const fill = (label: string, text: string): Promise<void> => {
    typed.push([label, text]);
    return field(label).fill(text);
  };
  const select = async (label: string, value: string): Promise<void> => {
    typed.push([label, value]);
    await field(label).selectOption(value);
  };
  const typedStays = async (): Promise<void> => {
    for (const [label, value] of typed) expect(await field(label).inputValue(), label).toBe(value);
  };
  /** A person who works by keyboard goes on from where they were. */
  const focusStays = () =>
    page.locator(':focus').first().waitFor({ state: 'attached', timeout: 5_000 });
  const press = (name: string | RegExp) =>
    page.getByRole('button', { name, exact: true }).first().click();

  type Row = {
    change: ChangeName;
    /** The same change in another way. */
    way?: string;
    path: string;
    /** Fills the form and sends it, or does the action. */
    act: () => Promise<void>;
    /** The field that the form has; undefined: it has none. */
    field?: string;
    /** The page without a session. */
    signedOut?: true;
    /** A request before this one was right, so the next page shows the error. */
    leaves?: true;
    /** The page sends it without an action of the person. */
    byItself?: true;
  };
  const choose = async (menu: string | RegExp, item: string): Promise<void> => {
    await page.getByRole('button', { name: menu }).first().click();
    await page.getByRole('menuitem', { name: item }).click();
  };
  const confirm = (name: string) =>
    page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  const signInAsAnother = async (): Promise<void> => {
    await page.route('**/_oauth/userinfo', (sent) =>
      sent.fulfill({ json: { email: 'vera@example.org' } }),
    );
    const user = { id: 'u-ada', email: 'ada@example.org', role: 'admin' };
    await page.route(`**${ROUTES.exchange.path}`, (sent) =>
      sent.fulfill({
        json: { token: '', token_type: 'Bearer', expires_in: 3_600, refresh_token: '', user },
      }),
    );
    await open('/?signed-in=of-no-login');
    await press('Continue as vera@example.org');
  };
  const createProject = async (): Promise<void> => {
    await fill('Git address', 'https://git.example.org/x.git');
    await press('Create and deploy');
  };
  const setSecret = async (): Promise<void> => {
    await fill('Name', 'KEY');
    await fill('Value', 'x');
    await press('Save');
  };
  const ROWS: readonly Row[] = [
    {
      change: 'sign-in call login',
      signedOut: true,
      path: '/',
      act: async () => {
        await fill('E-mail address', 'ada@example.org');
        await fill('Password', 'one long password');
        await press('Sign in');
      },
    },
    {
      change: 'sign-in call exchange',
      signedOut: true,
      byItself: true,
      path: '/',
      act: async () => {
        await page.route('**/_oauth/userinfo', (sent) =>
          sent.fulfill({ json: { email: 'vera@example.org' } }),
        );
        await page.evaluate(() => localStorage.setItem('berth.sign-in', 'of-this-browser'));
        await open('/?signed-in=of-this-browser');
      },
    },
    {
      // The gateway knew one person when it was asked, and signed in another one.
      change: 'sign-in call logout',
      signedOut: true,
      path: '/',
      act: async () => {
        await signInAsAnother();
      },
    },
    { change: 'account call logout', path: '/account', act: () => press('Sign out') },
    {
      change: 'tokens create createToken',
      path: '/account',
      act: async () => {
        await fill('Name', 'ci');
        await press('Create');
      },
      field: 'name',
    },
    { change: 'tokens revoke deleteToken', path: '/account', act: () => press('Revoke ci') },
    {
      change: 'password-form password changePassword',
      path: '/account',
      act: async () => {
        await fill('Current password', 'one long password');
        await fill('New password', 'another long password');
        await press('Change');
      },
      field: 'old_password',
    },

    {
      change: 'new-project create createProject',
      path: '/projects/new',
      act: createProject,
      field: 'branch',
    },
    {
      change: 'new-project call createDeployment',
      leaves: true,
      path: '/projects/new',
      act: createProject,
    },
    {
      change: 'repository call createRepositoryLook',
      path: '/projects/new',
      act: async () => {
        await fill('Git address', 'https://git.example.org/x.git');
        await page.keyboard.press('Tab');
      },
    },
    {
      change: 'instances scale scaleProject',
      path: '/projects/explorer',
      act: async () => {
        await fill('Number of instances', '3');
        await press('Scale');
      },
      field: 'web',
    },
    {
      change: 'project deploy createDeployment',
      path: '/projects/explorer',
      act: () => press('Deploy'),
    },
    {
      change: 'project restart restartProject',
      path: '/projects/explorer',
      act: () => choose('More actions', 'Restart'),
    },
    { change: 'project start startProject', path: '/projects/wiki', act: () => press('Start') },
    {
      change: 'project stop stopProject',
      path: '/projects/explorer',
      act: async () => {
        await choose('More actions', 'Stop');
        await confirm('Stop');
      },
    },
    {
      change: 'project rollback rollback',
      path: '/projects/explorer',
      act: () => choose('More actions', 'Roll back to the release before'),
    },
    {
      change: 'deployment rollback rollback',
      path: '/deployments/dep-explorer-12',
      act: () => press('Roll back to this'),
    },
    {
      change: 'deployment cancel cancelDeployment',
      path: '/deployments/dep-reports-5',
      act: () => press('Cancel'),
    },

    {
      change: 'env-form putSecret putSecret',
      path: '/projects/explorer/env',
      act: setSecret,
      field: 'value',
    },
    {
      change: 'env-form putEnv putEnv',
      path: '/projects/explorer/env',
      act: async () => {
        await page.getByLabel(/^Secret: /).uncheck();
        await setSecret();
      },
      field: 'name',
    },
    {
      change: 'env deleteEnv deleteEnv',
      path: '/projects/explorer/env',
      act: () => choose('Actions for TZ', 'Remove'),
    },
    {
      change: 'env deleteSecret deleteSecret',
      path: '/projects/explorer/env',
      act: () => choose('Actions for DATABASE_URL', 'Delete'),
    },
    {
      change: 'domains add patchProject',
      path: '/projects/explorer/domains',
      act: async () => {
        await fill('Domain', 'www.example.org');
        await press('Add');
      },
      field: 'domains[1]',
    },
    {
      change: 'domains remove patchProject',
      path: '/projects/explorer/domains',
      act: async () => {
        await choose('Actions for explorer.example.com', 'Remove');
        await confirm('Remove');
      },
    },
    {
      change: 'hook put putHook',
      path: '/projects/shop/hook',
      act: () => press('Create the hook'),
    },
    {
      change: 'hook remove deleteHook',
      path: '/projects/explorer/hook',
      act: () => press('Delete the hook'),
    },
    {
      change: 'members add patchProject',
      path: '/projects/explorer/members',
      act: async () => {
        await select('Person', 'u-grace');
        await press('Add');
      },
      field: 'members[0].user_id',
    },
    {
      change: 'members change patchProject',
      way: 'another role',
      path: '/projects/reports/members',
      act: () => choose('Actions for grace@example.org', 'Make viewer'),
    },
    {
      change: 'members change patchProject',
      way: 'without the last one',
      path: '/projects/reports/members',
      act: async () => {
        await choose('Actions for grace@example.org', 'Remove');
        await confirm('Remove');
      },
    },
    {
      change: 'job-form create createJob',
      path: '/projects/explorer/jobs',
      act: async () => {
        await fill('Name', 'nightly');
        await fill('Schedule', '@daily');
        await fill('Command', 'node nightly.js');
        await press('Add the job');
      },
      field: 'schedule',
    },
    {
      change: 'job-form change patchJob',
      path: '/projects/explorer/jobs',
      act: async () => {
        await choose('Actions for report', 'Edit');
        await fill('CPUs', '0.5');
        await press('Save');
      },
      field: 'cpus',
    },
    {
      change: 'jobs runNow runJob',
      path: '/projects/explorer/jobs',
      act: () => choose('Actions for report', 'Run now'),
    },
    {
      change: 'jobs toggle patchJob',
      path: '/projects/explorer/jobs',
      act: () => choose('Actions for report', 'Disable'),
    },
    {
      change: 'jobs remove deleteJob',
      path: '/projects/explorer/jobs',
      act: async () => {
        await choose('Actions for report', 'Delete');
        await confirm('Delete');
      },
    },
    {
      change: 'runs create createRun',
      path: '/projects/explorer/runs',
      act: async () => {
        await fill('Command', 'node migrate.js');
        await fill('Variables', 'STEP=42');
        await press('Run');
      },
      field: 'env.STEP',
    },
    {
      change: 'console create execProject',
      path: '/projects/explorer/console',
      act: async () => {
        await fill('Command', 'sh -l');
        await press('Start');
      },
      field: 'command',
    },
    { change: 'run cancel cancelRun', path: '/runs/run-1', act: () => press('Cancel') },
    {
      change: 'data-volumes addVolume patchProject',
      path: '/projects/explorer/data',
      act: async () => {
        await fill('Volume', 'uploads');
        await fill('Path in the container', '/var/uploads');
        await press('Add the volume');
      },
      field: 'volumes[0].mount_path',
    },
    {
      change: 'data-volumes removeVolume patchProject',
      path: '/projects/labels/data',
      act: () => choose('Actions for uploads', 'Remove from the project'),
    },
    {
      change: 'data-datasets addDataset patchProject',
      path: '/projects/explorer/data',
      act: async () => {
        await select('Dataset', 'd-genomes');
        await press('Add the dataset');
      },
      field: 'datasets[1].dataset_id',
    },
    {
      change: 'data-datasets removeDataset patchProject',
      path: '/projects/explorer/data',
      act: () => choose('Actions for stations', 'Remove from the project'),
    },
    {
      change: 'git-access create createDeployKey',
      path: '/projects/shop/settings',
      act: () => press('Create a deploy key'),
    },
    {
      change: 'git-access remove deleteDeployKey',
      path: '/projects/explorer/settings',
      act: () => press('Delete the deploy key'),
    },
    {
      change: 'git-access put putGitToken',
      path: '/projects/explorer/settings',
      act: async () => {
        await fill('Token', 'x');
        await press('Set the git token');
      },
      field: 'username',
    },
    {
      change: 'git-access remove deleteGitToken',
      path: '/projects/explorer/settings',
      act: () => press('Delete the git token'),
    },
    {
      change: 'deployment again createDeployment',
      path: '/deployments/dep-shop-22',
      act: () => press('Deploy again'),
    },
    {
      change: 'settings save patchProject',
      path: '/projects/explorer/settings',
      act: async () => {
        await fill('Branch', 'next');
        await press('Save');
      },
      field: 'branch',
    },
    {
      change: 'settings remove deleteProject',
      path: '/projects/explorer/settings',
      act: async () => {
        await press('Delete …');
        await fill('Type explorer to confirm', 'explorer');
        await confirm('Delete');
      },
    },

    { change: 'node cordon cordonNode', path: '/nodes/node-b', act: () => press('Cordon') },
    { change: 'node uncordon uncordonNode', path: '/nodes/node-c', act: () => press('Uncordon') },
    {
      change: 'labels patch patchNode',
      path: '/nodes/node-b',
      act: async () => {
        await field('Labels of admins').fill('rack=7');
        await page.keyboard.press('Enter');
        await press('Save the labels');
      },
    },
    {
      change: 'node drain drainNode',
      path: '/nodes/node-b',
      act: async () => {
        await press('Drain …');
        await confirm('Drain');
      },
    },
    {
      change: 'to-remove removed confirmRemoved',
      path: '/nodes/node-c',
      act: async () => {
        await press('Confirm that svc-minutes is removed');
        await confirm('It is removed');
      },
    },
    {
      change: 'dataset scan scanDataset',
      path: '/datasets/stations',
      act: () => press('Scan now'),
    },
    {
      change: 'dataset accept scanDataset',
      path: '/datasets/images',
      act: async () => {
        await press('Accept the loss …');
        await fill('Type images to confirm', 'images');
        await confirm('Accept');
      },
    },
    {
      change: 'notification-form create createNotification',
      path: '/notifications',
      act: async () => {
        await fill('Name', 'ops');
        await fill('Address', 'https://hooks.example.org');
        await press('Create');
      },
      field: 'target',
    },
    {
      change: 'targets test testNotification',
      path: '/notifications',
      act: () => choose(/^Actions for /, 'Send a test'),
    },
    {
      change: 'targets remove deleteNotification',
      path: '/notifications',
      act: () => choose(/^Actions for /, 'Delete'),
    },
    {
      change: 'people create createUser',
      path: '/people',
      act: async () => {
        await fill('E-mail address', 'new@example.org');
        await press('Add');
      },
      field: 'email',
    },
    {
      change: 'people patch patchUser',
      path: '/people',
      act: () => choose('Actions for grace@example.org', 'Make viewer'),
    },
    { change: 'clean-ups clean startCleanUp', path: '/system', act: () => press('Clean up now') },
  ];

  const problemOf = (status: number, detail: string, errors: object[] = []) => ({
    status,
    contentType: 'application/problem+json',
    body: JSON.stringify({
      ...{ type: 'about:blank', title: 'No', status, detail, code: 'validation', request_id: 'r' },
      ...(errors.length === 0 ? {} : { errors }),
    }),
  });
  const shown = (text: string | RegExp) => page.getByText(text).filter({ visible: true });
  const shownOnce = async (text: string | RegExp): Promise<void> => {
    await shown(text).first().waitFor();
    expect(await shown(text).count()).toBe(1);
  };

  describe('commands and errors', () => {
    // The server does nothing that these tests send, so all of them use one page.
    beforeAll(start);
    beforeEach(() => clean);

    it('each page has a command to copy, and the command line has all of them', {
      timeout: 120_000,
    }, async () => {
      const router = await readFile(
        join(repositoryRoot, 'packages/dashboard/src/app/router.tsx'),
        'utf8',
      );
      const paths = [...router.matchAll(/^ {2}at\('([^']+)'/gm)].flatMap(
        ([, path = '']) => VALUES[path] ?? [path],
      );
      expect(paths.length).toBeGreaterThan(20);
      const found: Record<string, string[]> = {};
      const wrong: string[] = [];
      const headings: string[] = [];
      const requested = new Set<string>();
      page.on('request', (request) => void requested.add(new URL(request.url()).pathname));
      for (const path of paths) {
        await open(path);
        const texts = page.getByRole('button', { name: /^Copy the command berth / });
        await texts
          .first()
          .waitFor({ timeout: 5_000 })
          .catch(() => wrong.push(`${path} has no command`));
        found[path] = [];
        headings.push(...(await page.getByRole('heading').allTextContents()));
        for (const button of await texts.all()) {
          const line = (
            (await button.getAttribute('aria-label')) ??
            (await button.textContent()) ??
            ''
          ).replace('Copy the command berth ', '');
          const problem = commandProblem(
            [...line.matchAll(/'([^']*)'|(\S+)/g)].map(
              ([, quoted, plain]) => quoted ?? plain ?? '',
            ),
          );
          if (problem !== null) wrong.push(`${path}: berth ${line}: ${problem}`);
        }
      }
      expect(wrong).toEqual([]);
      // A heading is words, and no name of the code.
      expect(headings.filter((text) => /[a-z][A-Z]|_/.test(text.replace('GitHub', '')))).toEqual(
        [],
      );
      // A browser of a real installation reaches the control plane only through the proxy.
      const leads = await shippedRules();
      expect(requested.size).toBeGreaterThan(50);
      for (const { file, toControlPlane } of leads)
        expect(
          [...requested].filter((path) => !toControlPlane(path)),
          file,
        ).toEqual([]);
    });

    it('each change in the sources has a row', () => {
      const changes = changesOfSource();
      expect(changes.length).toBeGreaterThan(35);
      expect(changes).toEqual([...new Set(ROWS.map(({ change }) => change))].toSorted());
    });

    const NAMED = ROWS.map(
      (row) => [row.way === undefined ? row.change : `${row.change}, ${row.way}`, row] as const,
    );
    it.each(NAMED)('%s: an error stands at its field, or once on the page', async (_name, row) => {
      const route: Route = ROUTES[row.change.split(' ')[2] as RouteName];
      const address = new RegExp(`^${route.path.replaceAll(/:\w+/g, '[^/]+')}$`);
      let refusal = problemOf(409, '');
      let requests = 0;
      mock.answerInstead((method, path) => {
        if (method !== route.method || !address.test(path)) return undefined;
        requests += 1;
        return refusal;
      });
      if (row.signedOut)
        await page.context().addCookies([{ name: 'mock_signed_out', value: '1', url: mock.url }]);
      // The second attempt begins with the error of the first one on the page.
      const refuse = async (status: number, errors: object[]): Promise<void> => {
        refusal = problemOf(status, 'whole request refused', errors);
        requests = 0;
        await row.act();
        await waitFor('the request is sent', () => requests > 0);
      };
      const nothingIsLost = async (): Promise<void> => {
        if (!row.leaves) await typedStays();
        if (!row.byItself) await focusStays();
      };
      await open(row.path);
      await refuse(409, []);
      await shownOnce('whole request refused');
      await nothingIsLost();
      if (row.field === undefined) return;
      await refuse(422, [
        { field: row.field, rule: 'test', message: 'breaks the rule of the test' },
      ]);
      await shownOnce('breaks the rule of the test');
      expect(await shown('whole request refused').count()).toBe(0);
      // Programs that read the page aloud find the error by the field.
      expect(await page.locator('[aria-invalid="true"]').count()).toBe(1);
      await nothingIsLost();
      // A field that this form does not have: the form names it.
      await refuse(422, [{ field: 'other_field', rule: 'test', message: 'breaks another rule' }]);
      await shownOnce(/breaks another rule/);
    });

    it('a project that is scaled shows its instances, and may not be scaled to the same number', async () => {
      await open('/projects/explorer');
      await page.getByText('1 instance serves.').waitFor();
      await fill('Number of instances', '3');
      await press('Scale');
      await page.getByText('3 of 3 instances serve.').waitFor();
      expect(await field('Number of instances').inputValue()).toBe('3');
      await page.getByText('it has this number already').first().waitFor({ state: 'attached' });
    });

    it('the story of a failover has its day, because the deployment is older', async () => {
      await open('/deployments/dep-storefront-17');
      const moves = page
        .getByRole('listitem')
        .filter({ hasText: 'web 2 moves from node-d to node-b' });
      expect(await moves.locator('time').textContent()).toMatch(/^\d{4}-\d\d-\d\d\d\d:\d\d:\d\d$/);
    });

    it('the metrics are of one instance or of all, by keyboard too, and the command says which', async () => {
      await open('/projects/handbook/metrics');
      await page.getByLabel('Range', { exact: true }).waitFor();
      expect(await page.getByLabel('Instance', { exact: true }).count(), 'only one').toBe(0);
      await open('/projects/storefront/metrics');
      await page.getByText(/ of 1\.5 GiB/).waitFor();
      const asked = page.waitForRequest(/\/metrics\?.*instance=2/);
      await field('Instance').focus();
      // The second choice: the instances follow `all`.
      await page.keyboard.press('ArrowDown');
      await page.keyboard.press('ArrowDown');
      await asked;
      await page.getByText(/ of 512 MiB/).waitFor();
      expect(await field('Instance').inputValue()).toBe('2');
      await page.getByText('berth metrics storefront --since 1h --instance 2').waitFor({
        state: 'attached',
      });
      await select('Instance', 'all');
      await page.getByText(/ of 1\.5 GiB/).waitFor();
    });

    it('the session of an account that nobody chose opens no page, also after a reload, until it has ended', async () => {
      const signedOut = { name: 'mock_signed_out', value: '1', url: mock.url };
      await page.context().addCookies([signedOut]);
      await page.route(`**${ROUTES.logout.path}`, (sent) =>
        sent.fulfill(problemOf(503, 'signing out is not possible now')),
      );
      await signInAsAnother();
      await shownOnce('signing out is not possible now');
      // The cookie has the session of the other account.
      await page.context().clearCookies();
      await page.goto(`${mock.url}/projects`);
      await shownOnce('signing out is not possible now');
      expect(await page.locator('h1').count()).toBe(0);
      await page.unroute(`**${ROUTES.logout.path}`);
      await press('Try again');
      await page.getByRole('heading', { name: 'Sign in to Berth' }).waitFor();
      await page.goto(`${mock.url}/projects`);
      await page.getByRole('heading', { name: 'Sign in to Berth' }).waitFor();
    });

    it('a login signs in nobody without a question if the gateway does not say whose session it is', async () => {
      await page.context().addCookies([{ name: 'mock_signed_out', value: '1', url: mock.url }]);
      let requests = 0;
      await page.route(`**${ROUTES.exchange.path}`, (sent) => {
        requests += 1;
        return sent.continue();
      });
      await page.route('**/_oauth/userinfo', (sent) => sent.fulfill({ status: 503, body: '' }));
      await open('/');
      await page.evaluate(() => localStorage.setItem('berth.sign-in', 'of-this-browser'));
      await open('/?signed-in=of-this-browser');
      await shownOnce('The gateway does not say whose session this browser has. Sign in again.');
      expect(requests).toBe(0);
    });

    it('of two actions the page shows the error of the last one', async () => {
      await page.route(/\/deployments$/, (sent) =>
        sent.request().method() === 'POST'
          ? sent.fulfill(problemOf(409, 'the first one is refused'))
          : sent.continue(),
      );
      await page.route(/\/restart$/, (sent) =>
        sent.fulfill(problemOf(409, 'the second one is refused')),
      );
      await open('/projects/explorer');
      await press('Deploy');
      await shownOnce('the first one is refused');
      await choose('More actions', 'Restart');
      await shownOnce('the second one is refused');
      expect(await shown('the first one is refused').count()).toBe(0);
    });
  });

  describe('a choice that protects', () => {
    beforeEach(start);
    /** Waits until the form has sent it, and the field is empty for the next one. */
    const emptied = (label: string) =>
      waitFor(`${label} is empty`, async () => (await field(label).inputValue()) === '');
    const secretBox = () => page.getByLabel(/^Secret: /);

    it('the next value after a variable is a secret again', async () => {
      await open('/projects/explorer/env');
      await secretBox().uncheck();
      await setSecret();
      await emptied('Value');
      expect(await secretBox().isChecked()).toBe(true);
      await fill('Name', 'NEXT');
      await fill('Value', 'hidden');
      await press('Save');
      await page
        .getByRole('table', { name: 'Secrets' })
        .getByText('NEXT', { exact: true })
        .waitFor();
      expect(
        await page
          .getByRole('table', { name: 'Environment variables' })
          .getByText('NEXT', { exact: true })
          .count(),
      ).toBe(0);
    });

    it.each([
      ['STRIPE_API_KEY', 'x', true],
      ['db_password', 'x', true],
      ['GITHUB_TOKEN', 'x', true],
      ['DATABASE_URL', 'postgres://app:pw@db/app', true],
      ['API_URL', 'https://api.example.org', false],
      ['LOG_LEVEL', 'debug', false],
      ['KEYBOARD', 'de', false],
    ])(
      'a variable %s with %s: the form asks whether it is a secret: %s',
      async (name, value, asks) => {
        await open('/projects/explorer/env');
        await secretBox().uncheck();
        await fill('Name', name);
        await fill('Value', value);
        const warning = page.getByRole('status').filter({ hasText: /looks like a secret/ });
        await waitFor(
          'the form has decided',
          async () => (await warning.count()) === (asks ? 1 : 0),
        );
        await secretBox().check();
        await waitFor('a secret needs no warning', async () => (await warning.count()) === 0);
      },
    );

    it('texts of one project are not those of the next one', async () => {
      await open('/projects/shop/env');
      await page.getByRole('table', { name: 'Secrets' }).waitFor();
      await open('/projects/explorer/env');
      // The page of the other project comes from memory, without a moment in which it loads.
      await page.evaluate(
        "history.pushState({}, '', '/projects/shop/env'); dispatchEvent(new " +
          "PopStateEvent('popstate', { state: {} }))",
      );
      await page.getByRole('heading', { level: 1, name: 'shop', exact: true }).waitFor();
      await page.goBack();
      await page.getByRole('heading', { level: 1, name: 'explorer', exact: true }).waitFor();
      await fill('Name', 'OF_EXPLORER');
      await fill('Value', 'a secret of explorer');
      await page.goForward();
      await page.getByRole('heading', { level: 1, name: 'shop', exact: true }).waitFor();
      expect([await field('Name').inputValue(), await field('Value').inputValue()]).toEqual([
        '',
        '',
      ]);
    });

    it('a name that was typed to confirm is typed again after the dialog was closed', async () => {
      await open('/projects/explorer/settings');
      await press('Delete …');
      await fill('Type explorer to confirm', 'explorer');
      await confirm('Keep as it is');
      await press('Delete …');
      expect(await field('Type explorer to confirm').inputValue()).toBe('');
    });

    it('the next person and the next token get the least role again, and a limit to projects stays', async () => {
      await open('/people');
      await fill('E-mail address', 'root@example.org');
      await select('Role', 'admin');
      await press('Add');
      await emptied('E-mail address');
      expect(await field('Role').inputValue()).toBe('viewer');
      await open('/account');
      await fill('Name', 'ci');
      await select('Role', 'developer');
      await fill('Valid for \\(days\\)', '365');
      await page.getByLabel('Only these projects').first().fill('shop');
      await page.keyboard.press('Enter');
      await press('Create');
      await emptied('Name');
      expect(await field('Role').inputValue()).toBe('viewer');
      expect(await field('Valid for \\(days\\)').inputValue()).toBe('90');
      expect(await page.getByText('shop', { exact: true }).first().isVisible()).toBe(true);
    });
  });

  describe('a new project', () => {
    beforeEach(start);
    const created = async () =>
      (await (await fetch(`${mock.url}/api/projects/x`)).json()) as Record<string, unknown>;
    /** The answer of a builder: one branch `master`, a Dockerfile that exposes 3000. */
    const finds = async (branch: string, port: number): Promise<void> => {
      await page.route('**/api/repository-looks', (sent) => {
        const asked = sent.request().postDataJSON() as { git_url: string; branch: string | null };
        const at = new Date().toISOString();
        const found = {
          ...{
            default_branch: branch,
            branches: [branch],
            branches_left_out: 0,
            branch,
            commit: 'a'.repeat(40),
            submodules: false,
            lfs: false,
          },
          dockerfiles: [{ path: 'Dockerfile', ports: [port], targets: [] }],
          dockerfiles_left_out: 0,
        };
        const body = {
          id: null,
          ...asked,
          branch: null,
          project_id: null,
          state: 'done',
          created_at: at,
          found,
          error: null,
        };
        return sent.fulfill({
          status: 201,
          contentType: 'application/json',
          body: JSON.stringify(body),
        });
      });
    };

    it('somebody who pastes an address and presses the button at once gets the branch and the port of the repository', async () => {
      await finds('master', 3000);
      await open('/projects/new');
      await field('Git address').fill('https://git.example.org/x.git');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'x #1' }).waitFor();
      expect(await created()).toMatchObject({ branch: 'master', container_port: 3000 });
    });

    it('a typed value stays, and the builder’s answer fills in the others', async () => {
      await finds('master', 3000);
      await open('/projects/new');
      await fill('Branch', 'release');
      await field('Git address').fill('https://git.example.org/x.git');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'x #1' }).waitFor();
      expect(await created()).toMatchObject({ branch: 'release', container_port: 3000 });
    });

    it('an address without https:// is one of https', async () => {
      await finds('master', 3000);
      await open('/projects/new');
      await field('Git address').fill('github.com/acme/x');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'x #1' }).waitFor();
      expect(await created()).toMatchObject({ git_url: 'https://github.com/acme/x' });
    });

    it('an error of a field uses the words of the form', async () => {
      const message = 'the host must be one of 127.0.0.1';
      const errors = [{ field: 'git_url', rule: 'host', message }];
      await page.route('**/api/repository-looks', (sent) =>
        sent.fulfill(problemOf(422, `git_url: ${message}`, errors)),
      );
      await open('/projects/new');
      await field('Git address').fill('https://github.com/acme/x');
      await page.keyboard.press('Tab');
      await page.getByText('Git address: the host must be one of 127.0.0.1').waitFor();
      expect(await page.getByText(/git_url/).count()).toBe(0);
    });
  });

  describe('a failed deployment', () => {
    beforeEach(start);
    const OUTPUT =
      'node:internal/modules/cjs/loader:1386\n  throw err;\n  ^\n\nError: Cannot find module ' +
      '"/app/missing.js"\n    at Module (x)';
    const SENTENCE = 'RUN node --check missing.js failed: Cannot find module "/app/missing.js"';
    /** The failure of `shop` #22 in all answers. */
    const fails = () =>
      page.route(/\/api\/(?:deployments|projects\/[^/]+\/deployments)/, async (sent) => {
        if (sent.request().method() !== 'GET' || /logs|exits/.test(sent.request().url()))
          return sent.continue();
        const answer = await sent.fetch();
        const message = `[4/5] RUN node --check missing.js: exit code 1\n${OUTPUT}`;
        const text = (await answer.text()).replaceAll(
          /"error":\{"code":"build_step_failed","message":"(?:[^"\\]|\\.)*"\}/g,
          () => JSON.stringify({ error: { code: 'build_step_failed', message } }).slice(1, -1),
        );
        return sent.fulfill({ response: answer, body: text });
      });

    it('lists have one sentence; its page has the whole text once, with its lines', async () => {
      await fails();
      await open('/deployments/dep-shop-22');
      await page.getByText(SENTENCE, { exact: true }).waitFor();
      const whole = page.getByText(/throw err/);
      expect(await whole.count()).toBe(1);
      expect(
        await whole.evaluate(
          (element) => (element as unknown as { innerText: string }).innerText.split('\n').length,
        ),
      ).toBe(7);
      for (const path of ['/projects/shop', '/projects/sketch', '/', '/activity?kind=deployment']) {
        await open(path);
        if (path !== '/projects/sketch') await page.getByText(SENTENCE).first().waitFor();
        expect(await page.getByText(/throw err|at Module/).count(), path).toBe(0);
      }
    });

    it('can be deployed again, and offers nothing that is not possible', async () => {
      await open('/deployments/dep-shop-22');
      const names = await page.getByRole('button').allTextContents();
      expect(names).toContain('Deploy again');
      expect(names).not.toContain('Roll back to this');
      expect(names).not.toContain('Cancel');
      await press('Deploy again');
      await page.getByRole('heading', { level: 1, name: 'shop #23' }).waitFor();
    });

    it('its commands have no placeholder while the name of the project is not known', async () => {
      await page.route(/\/api\/projects\/p-shop$/, () => undefined);
      await page.goto(`${mock.url}/deployments/dep-shop-22`);
      await page.getByRole('heading', { level: 1, name: 'Deployment #22' }).waitFor();
      const labels = await page
        .getByRole('button', { name: /^Copy the command/ })
        .evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
      expect(labels.length).toBeGreaterThan(1);
      expect(
        labels.filter((label) =>
          / deployment( |$)/.test((label ?? '').replace('berth deployment show', '')),
        ),
      ).toEqual([]);
      await page.unrouteAll({ behavior: 'ignoreErrors' });
    });
  });

  describe('a node that needs a person', () => {
    beforeEach(start);
    const needs = () => page.getByRole('table', { name: 'What needs attention' });

    it('shows the commands for which a drain waits, and the devices of commands', async () => {
      await open('/nodes/node-b');
      await page.getByRole('link', { name: 'release command of a deployment' }).waitFor();
      await page.getByRole('link', { name: 'run-1' }).click();
      await page.getByText('Devices nvidia.com/gpu').waitFor();
      await open('/projects/explorer/jobs');
      await page.getByText('with 2 × nvidia.com/gpu').first().waitFor();
    });

    it('a container that only a person can remove is named until an admin confirms that it is gone', async () => {
      await open('/');
      await needs().getByText('1 container to remove by hand: svc-minutes of minutes').waitFor();
      await open('/nodes');
      await page.getByText('1 container to remove by hand: svc-minutes of minutes').waitFor();
      await open('/nodes/node-c');
      await page.getByText('2 projects moved, 2 left').waitFor();
      await page.getByText('svc-minutes of minutes: waits until it is removed by hand').waitFor();
      await page.getByText('docker rm -f svc-minutes', { exact: true }).waitFor();
      await page.getByText('berth node removed node-c svc-minutes', { exact: true }).waitFor();
      // The project may be deleted.
      expect(await page.getByRole('link', { name: 'minutes' }).count()).toBe(0);
      await press('Confirm that svc-minutes is removed');
      await page
        .getByRole('dialog')
        .getByText(/two versions may write the same data/)
        .waitFor();
      await confirm('It is removed');
      await page.getByText('2 projects moved, 1 left').waitFor();
      expect(await page.getByText('svc-minutes').count()).toBe(0);
      await open('/');
      expect(await needs().getByText('svc-minutes').count()).toBe(0);
    });

    it('only an admin can confirm it', async () => {
      await page.context().addCookies([{ name: 'mock_role', value: 'developer', url: mock.url }]);
      await open('/nodes/node-c');
      const button = page.getByRole('button', { name: 'Confirm that svc-minutes is removed' });
      expect(await button.getAttribute('aria-disabled')).toBe('true');
      await button.focus();
      await page.keyboard.press('Enter');
      await page
        .getByText('your role is developer; this needs admin')
        .first()
        .waitFor({ state: 'attached' });
      expect(await page.getByRole('dialog').count()).toBe(0);
    });

    it('a dead node names the machine that has its address now, and what to do', async () => {
      await open('/');
      await needs()
        .getByText(/^node node-b has its address 192\.0\.2\.28/)
        .waitFor();
      await open('/nodes/node-d');
      await page.getByText('Another machine has the address of this node').waitFor();
      await page.getByText('berth node delete n-node-d --force', { exact: true }).waitFor();
      await page.getByRole('note').getByRole('link', { name: 'node-b' }).click();
      await page.getByRole('heading', { level: 1, name: 'node-b', exact: true }).waitFor();
      expect(await page.getByText('Another machine has the address').count()).toBe(0);
    });

    it('a project without a fixed port has its command', async () => {
      await open('/nodes');
      await page.getByText('no fixed port: handbook').waitFor();
      await open('/nodes/node-a');
      await page.getByText('1 project without a fixed port').waitFor();
      await page.getByText('berth restart handbook', { exact: true }).waitFor();
      expect(await page.getByText('running, its port is not fixed').count()).toBe(1);
    });
  });

  describe('the settings of a project', () => {
    beforeEach(start);
    const problem = (errors: object[]) => ({
      ...{
        type: 'about:blank',
        title: 'No',
        status: 422,
        detail: 'no',
        code: 'validation',
        request_id: 'r',
      },
      errors,
    });

    it('every field that the API accepts has its control, here or on a tab of its own', async () => {
      await open('/projects/labels/settings');
      for (const { label } of FORM)
        expect(await page.getByLabel(label).count(), label).toBeGreaterThan(0);
      expect([...FORM.map(({ name }) => name), ...Object.keys(ELSEWHERE)].toSorted()).toEqual(
        Object.keys(ProjectPatch.properties).toSorted(),
      );
      for (const tab of Object.values(ELSEWHERE)) {
        await open(`/projects/labels/${tab}`);
        await page
          .getByRole('button', { name: /^(Save|Add|Add the volume|Scale)$/ })
          .first()
          .waitFor();
      }
    });

    it('each kind of control saves its value', async () => {
      await open('/projects/labels/settings');
      await field('Memory \\(MiB\\)').fill('256');
      await field('CPUs').fill('1.5');
      await field('Build target').fill('runtime');
      await field('Build arguments').fill('A=1\nURL=https://x.example/?a=b');
      await page.getByLabel('Fetch submodules').uncheck();
      await field('Replace').selectOption('recreate');
      await field('On dataset change').selectOption('redeploy');
      await press('Save');
      const read = async () =>
        (await (await fetch(`${mock.url}/api/projects/labels`)).json()) as Record<string, unknown>;
      await waitFor('it is saved', async () => (await read())['build_target'] === 'runtime');
      expect(await read()).toMatchObject({
        ...{
          memory_bytes: 268_435_456,
          cpus: 1.5,
          submodules: false,
          replace: 'recreate',
          on_dataset_change: 'redeploy',
        },
        build_args: { A: '1', URL: 'https://x.example/?a=b' },
      });
      await field('Build arguments').fill('API_TOKEN=x');
      await page.getByText(/API_TOKEN looks like a secret/).waitFor();
      await field('Memory \\(MiB\\)').fill('');
      await press('Save');
      await waitFor('the limit is removed', async () => (await read())['memory_bytes'] === null);
      expect((await read())['build_args']).toEqual({ API_TOKEN: 'x' });
    });

    it.each([
      [
        'cors_origins[1]',
        'Origins that may call it',
        'item 2: is no origin',
        /pages of these origins/,
      ],
      ['start_seconds', 'Start (seconds)', 'is too long', /HEALTHCHECK.*1 to 3600/],
      ['requires', 'Requirements', 'are too many', /label:zone=a, arch:amd64/],
      ['git_lfs', 'Fetch Git LFS files', 'is not possible here', /the build gets their pointers/],
    ])(
      'an error of %s stands at its control, which has a help text',
      async (name, label, text, help) => {
        const errors = [{ field: name, rule: 'test', message: text.replace('item 2: ', '') }];
        await page.route(/\/api\/projects\/[^/]+$/, (sent) =>
          sent.request().method() === 'PATCH'
            ? sent.fulfill({
                status: 422,
                contentType: 'application/problem+json',
                body: JSON.stringify(problem(errors)),
              })
            : sent.continue(),
        );
        await open('/projects/labels/settings');
        await field('Branch').fill('next');
        await press('Save');
        await page.locator('[aria-invalid="true"]').waitFor({ state: 'attached' });
        expect(await page.getByLabel(label).first().getAttribute('aria-invalid')).toBe('true');
        await page.getByText(text, { exact: true }).waitFor();
        await page.getByText(help).waitFor();
        await page
          .getByText(`Saving failed: correct ${label}`, { exact: true })
          .waitFor({ state: 'attached' });
      },
    );

    it('a volume is added and removed on the tab Data', async () => {
      await open('/projects/labels/data');
      await fill('Volume', 'cache');
      await fill('Path in the container', '/cache');
      await press('Add the volume');
      await page.getByRole('table', { name: 'Volumes' }).getByText('/cache').waitFor();
      await choose('Actions for uploads', 'Remove from the project');
      await waitFor(
        'it is removed',
        async () => (await page.getByText('/var/uploads').count()) === 0,
      );
      await page.getByRole('table', { name: 'Volumes' }).getByText('/cache').waitFor();
    });
  });

  describe('what the person just did', () => {
    beforeEach(start);

    it('a rollback is named at the project and at its deployment', async () => {
      await open('/deployments/dep-explorer-12');
      await press('Roll back to this');
      await page.getByText(/rolled back from #14/).waitFor();
      await page.getByRole('link', { name: 'Project explorer' }).click();
      await page.getByText(/serves .*rolled back from #14/).waitFor({ timeout: 30_000 });
    });
  });

  describe('what the person sees', () => {
    beforeEach(start);
    type Box = { left: number; right: number; width: number };
    const boxOf = (locator: ReturnType<Page['locator']>): Promise<Box> =>
      locator.first().evaluate((element) => {
        const box = (
          element as unknown as { getBoundingClientRect(): Box }
        ).getBoundingClientRect();
        return { left: box.left, right: box.right, width: box.width };
      });

    it.each(['members', 'settings', 'domains', 'logs'])(
      'on a phone, the current tab %s is in the view',
      async (tab) => {
        await page.setViewportSize({ width: 390, height: 844 });
        await open('/projects/explorer');
        await page.getByRole('navigation', { name: 'Parts of the project' }).waitFor();
        await open(`/projects/explorer/${tab}`);
        const inView = async () => {
          const { left, right } = await boxOf(page.locator('.tabs [aria-current="page"]'));
          return left >= 0 && right <= 390;
        };
        await waitFor('the current tab is in the view', inView);
        const bar = await page.locator('.tabs').evaluate((element) => {
          const { offsetHeight, clientHeight } = element as unknown as {
            offsetHeight: number;
            clientHeight: number;
          };
          return offsetHeight - clientHeight;
        });
        // Only the line below: no scroll bar.
        expect(bar).toBeLessThanOrEqual(1);
      },
    );

    it('a tab that becomes the current one does not move the others', async () => {
      const lefts = async () =>
        (await page.locator('.tabs a').all()).reduce<Promise<number[]>>(
          async (all, link) => [...(await all), Math.round((await boxOf(link)).left)],
          Promise.resolve([]),
        );
      await open('/projects/explorer');
      const before = await lefts();
      await page.locator('.tabs').getByRole('link', { name: 'Env and secrets' }).click();
      await page.getByRole('heading', { name: 'Set a variable or a secret' }).waitFor();
      expect(await lefts()).toEqual(before);
    });

    it.each([390, 1400])(
      'at %i px the buttons of the sign-in show their whole text, and the card is never empty',
      async (width) => {
        await page.setViewportSize({ width, height: 844 });
        await page.context().addCookies([{ name: 'mock_signed_out', value: '1', url: mock.url }]);
        const held = Promise.withResolvers<void>();
        await page.route('**/api/auth/methods', async (sent) => {
          await held.promise;
          await sent.continue();
        });
        await page.goto(mock.url);
        await page.getByText('Loading the ways to sign in').waitFor({ state: 'attached' });
        expect(await page.locator('[data-skeleton]').count()).toBeGreaterThan(0);
        held.resolve();
        const button = page.getByRole('link', {
          name: 'Sign in with the identity provider of your team',
        });
        await button.waitFor();
        const isCut = await button.evaluate((element) => {
          type Sized = {
            scrollWidth: number;
            clientWidth: number;
            scrollHeight: number;
            clientHeight: number;
          };
          const all = [
            ...(
              element as unknown as { querySelectorAll(of: string): Iterable<Sized> }
            ).querySelectorAll('*'),
          ];
          return all.some(
            (one) =>
              one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1,
          );
        });
        expect(isCut).toBe(false);
      },
    );

    it('words instead of names of the API', async () => {
      await open('/activity');
      await page
        .getByRole('cell', { name: /^deployment (running|failed|deploying)$/ })
        .first()
        .waitFor();
      expect(await page.getByText(/^deployment\.\w+$/).count()).toBe(0);
      await open('/activity?kind=audit');
      await page.getByRole('cell', { name: 'create deployment' }).first().waitFor();
      await page.route(/\/api\/deployments\/dep-explorer-14$/, async (sent) => {
        const answer = await sent.fetch();
        const body = (await answer.json()) as object;
        await sent.fulfill({
          response: answer,
          json: {
            ...body,
            trigger: 'hook',
            created_by: { kind: 'hook', id: null, name: 'generic' },
          },
        });
      });
      await open('/deployments/dep-explorer-14');
      await page.getByText(/requested .* by a push/).waitFor();
      expect(await page.getByText(/by generic/).count()).toBe(0);
    });

    it('a notification that never sent anything is not tested, and does not “work”', async () => {
      await page.route('**/api/notifications*', async (sent) => {
        const answer = await sent.fetch();
        const body = (await answer.json()) as { items: object[] };
        await sent.fulfill({
          response: answer,
          json: {
            ...body,
            items: body.items.map((row) => ({ ...row, last_sent_at: null, failing_since: null })),
          },
        });
      });
      await open('/notifications');
      await page.getByText('not tested').first().waitFor();
      expect(await page.getByText('works', { exact: true }).count()).toBe(0);
    });

    it('log lines have their time, and no mark in front of them until the pointer is there', async () => {
      await open('/deployments/dep-explorer-14');
      const log = page.getByRole('log').first();
      await log
        .getByText(/npm ci/)
        .first()
        .waitFor();
      expect(await log.locator('.log-time').count()).toBeGreaterThan(3);
      expect(await log.locator('.log-link').filter({ visible: true }).count()).toBeLessThanOrEqual(
        1,
      );
    });

    it('on a phone, the page of a deployment has a link to its project before everything else', async () => {
      await page.setViewportSize({ width: 390, height: 844 });
      await open('/deployments/dep-explorer-14');
      const link = page.getByRole('main').getByRole('link').first();
      expect(await link.textContent()).toBe('Project explorer');
    });

    it('each stop of the focus has a name and a mark', { timeout: 180_000 }, async () => {
      const wrong: string[] = [];
      const paths = Object.values(VALUES).flat();
      for (const path of [
        ...new Set([
          ...paths,
          '/',
          '/projects',
          '/projects/new',
          '/nodes',
          '/datasets',
          '/notifications',
          '/people',
          '/system',
          '/account',
        ]),
      ]) {
        await open(path);
        for (let stop = 0; stop < 60; stop++) {
          await page.keyboard.press('Tab');
          const seen = await page.evaluate<{
            end: boolean;
            what: string;
            isNamed: boolean;
            isMarked: boolean;
          }>(`(() => {
            const at = document.activeElement;
            if (at === null || at === document.body) return { end: true, what: '', isNamed: true, isMarked: true };
            const labels = [...(at.labels ?? [])].map((label) => label.textContent).join('');
            const by = (at.getAttribute('aria-labelledby') ?? '').split(' ').map((id) => document.getElementById(id)?.textContent ?? '').join('');
            const name = (at.getAttribute('aria-label') ?? '') + by + labels + (/^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName) ? '' : at.textContent);
            const marks = [at, at.parentElement, at.closest('[data-focus], .mantine-Input-wrapper, .mantine-Switch-body, .mantine-Checkbox-body')].filter(Boolean);
            const isMarked = marks.some((one) => {
              const style = getComputedStyle(one);
              return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none' || one.matches('.skip-link');
            }) || at.matches('input, select, textarea') || at.nextElementSibling !== null;
            return { end: false, what: at.outerHTML.slice(0, 160), isNamed: name.trim() !== '', isMarked };
          })()`);
          if (seen.end) break;
          if (!seen.isNamed) wrong.push(`${path} stop ${stop + 1} has no name: ${seen.what}`);
          if (!seen.isMarked) wrong.push(`${path} stop ${stop + 1} has no mark: ${seen.what}`);
        }
      }
      expect(wrong).toEqual([]);
    });
  });

  describe('a change of somebody else', () => {
    beforeEach(start);
    const api = async (
      method: string,
      path: string,
      body?: object,
    ): Promise<Record<string, unknown>> => {
      const init =
        body === undefined
          ? {}
          : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
      const answer = await fetch(`${mock.url}/api/projects/p-explorer${path}`, { method, ...init });
      expect(answer.ok, `${method} ${path}: ${answer.status}`).toBe(true);
      return (await answer.json()) as Record<string, unknown>;
    };
    const project = () => api('GET', '');
    const meanwhile = (of: Page) =>
      of
        .getByText(/^Somebody else .* meanwhile/)
        .first()
        .waitFor();

    /**
     * Presses once, and once more if the page says that somebody else was faster: the event of the
     * change may arrive before or after.
     */
    const untilSaved = async (button: string, isSaved: () => Promise<boolean>): Promise<void> => {
      const told = page.getByText(/^Somebody else changed this meanwhile/).first();
      await press(button);
      await waitFor(
        'it is saved or refused',
        async () => (await isSaved()) || (await told.isVisible()),
      );
      if (await isSaved()) return;
      await waitFor('it is saved', async () => {
        await page
          .getByRole('button', { name: button, exact: true })
          .first()
          .click({ force: true });
        return isSaved();
      });
    };

    /**
     * The page does not read the project, as if each answer came late. Returns the function that
     * ends this.
     */
    const holdReads = async (): Promise<() => void> => {
      const held = Promise.withResolvers<void>();
      await page.route(/\/api\/projects\/[^/]+$/, async (sent) => {
        if (sent.request().method() === 'GET') await held.promise;
        // The page may have given up this request and sent it again.
        await sent.continue().catch(() => undefined);
      });
      return held.resolve;
    };

    it('of the same setting: both values, and the person chooses', async () => {
      await open('/projects/explorer/settings');
      await fill('Branch', 'mine');
      await api('PATCH', '', { branch: 'theirs' });
      await press('Save');
      await meanwhile(page);
      await page
        .getByRole('listitem')
        .filter({ hasText: /Branch: theirs\s*"theirs", yours\s*"mine"/ })
        .waitFor();
      expect((await project())['branch']).toBe('theirs');
      await press('Keep mine on top of theirs');
      await focusStays();
      await typedStays();
      await press('Save');
      await waitFor('mine is saved', async () => (await project())['branch'] === 'mine');
      await shown('Not possible: nothing is changed').first().waitFor({ state: 'attached' });
      await focusStays();
    });

    it('of something that the form does not show: it does not stand in the way for ever', async () => {
      await open('/projects/explorer/settings');
      await fill('Branch', 'mine');
      await api('PUT', '/env/OTHER', { value: 'x' });
      await untilSaved('Save', async () => (await project())['branch'] === 'mine');
      expect((await project())['env']).toMatchObject({ OTHER: 'x' });
    });

    it('of the same variable: both values, and the person chooses', async () => {
      await api('PUT', '/env/MODE', { value: 'before' });
      await open('/projects/explorer/env');
      await page.getByLabel(/^Secret: /).uncheck();
      await fill('Name', 'MODE');
      await fill('Value', 'mine');
      await api('PUT', '/env/MODE', { value: 'of-others' });
      // It is not possible if the page has the new value already.
      await page.getByRole('button', { name: 'Save', exact: true }).click({ force: true });
      await page.getByText('Somebody else changed MODE meanwhile').waitFor();
      await page
        .getByRole('status')
        .filter({ hasText: /theirs\s*of-others, yours\s*mine/ })
        .waitFor();
      expect((await project())['env']).toMatchObject({ MODE: 'of-others' });
      await press('Replace theirs with mine');
      await focusStays();
      await typedStays();
      await press('Save');
      await waitFor(
        'mine is saved',
        async () => ((await project())['env'] as Record<string, string>)['MODE'] === 'mine',
      );
    });

    it('of the domains: theirs stay, and what is typed too', async () => {
      await open('/projects/explorer/domains');
      await fill('Domain', 'mine.example.org');
      const before = (await project())['domains'] as string[];
      await api('PATCH', '', { domains: [...before, 'theirs.example.org'] });
      await untilSaved('Add', async () =>
        ((await project())['domains'] as string[]).includes('mine.example.org'),
      );
      expect((await project())['domains']).toEqual([
        ...before,
        'theirs.example.org',
        'mine.example.org',
      ]);
    });

    describe('of the members', () => {
      const GRACE = { user_id: 'u-grace', role: 'developer' };
      const VERA = { user_id: 'u-vera', role: 'viewer' };
      const set = (...members: object[]) => api('PATCH', '', { members });
      const members = async (): Promise<unknown> => (await project())['members'];
      const rowOf = (email: string, role: string) =>
        page.getByRole('row').filter({ hasText: email }).filter({ hasText: role }).waitFor();
      const REFUSED = /^Somebody else changed this meanwhile/;

      it('another person: both stay', async () => {
        await open('/projects/explorer/members');
        await select('Person', VERA.user_id);
        await select('Role in this project', VERA.role);
        const release = await holdReads();
        await set(GRACE);
        await press('Add');
        await shownOnce(REFUSED);
        release();
        await rowOf('grace@example.org', 'developer: reads and changes');
        await typedStays();
        await focusStays();
        expect(await members()).toEqual([GRACE]);
        await press('Add');
        await rowOf('vera@example.org', 'viewer: reads');
        expect(await members()).toEqual([GRACE, VERA]);
        await focusStays();
      });

      it('the same person: both roles, and the person chooses', async () => {
        await open('/projects/explorer/members');
        await select('Person', VERA.user_id);
        await select('Role in this project', VERA.role);
        const release = await holdReads();
        await set({ ...VERA, role: 'developer' });
        await press('Add');
        await shownOnce(REFUSED);
        release();
        await shownOnce('Somebody else added vera@example.org meanwhile');
        await page
          .getByRole('status')
          .filter({ hasText: /theirs\s*developer, yours\s*viewer/ })
          .waitFor();
        // The note says it in better words.
        expect(await shown(REFUSED).count()).toBe(0);
        await typedStays();
        expect(await members()).toEqual([{ ...VERA, role: 'developer' }]);
        await press('Replace theirs with mine');
        await focusStays();
        await typedStays();
        await press('Add');
        await waitFor(
          'mine is saved',
          async () => JSON.stringify(await members()) === JSON.stringify([VERA]),
        );
      });

      it('a removal: the change of the others stays', async () => {
        await set(GRACE, VERA);
        await open('/projects/explorer/members');
        const release = await holdReads();
        await set(GRACE, { ...VERA, role: 'developer' });
        await choose('Actions for grace@example.org', 'Remove');
        await shownOnce(REFUSED);
        release();
        await rowOf('vera@example.org', 'developer: reads and changes');
        expect(await members()).toEqual([GRACE, { ...VERA, role: 'developer' }]);
        await choose('Actions for grace@example.org', 'Remove');
        await waitFor(
          'one is left',
          async () =>
            JSON.stringify(await members()) === JSON.stringify([{ ...VERA, role: 'developer' }]),
        );
      });

      it('the removal of the last one: one whom the others add stays', async () => {
        await set(GRACE);
        await open('/projects/explorer/members');
        await choose('Actions for grace@example.org', 'Remove');
        await shownOnce('Remove the last member?');
        const release = await holdReads();
        await set(GRACE, VERA);
        await confirm('Remove');
        await shownOnce(REFUSED);
        release();
        await shownOnce('Somebody else added members meanwhile. They stay: vera@example.org.');
        expect(await members()).toEqual([GRACE, VERA]);
        await confirm('Remove');
        await waitFor(
          'only theirs is left',
          async () => JSON.stringify(await members()) === JSON.stringify([VERA]),
        );
      });
    });
  });
});
