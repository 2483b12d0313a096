/** Forms of the dashboard in Chromium, with the mock of the API: errors, changes of somebody else, commands to copy. */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { readFile } from 'node:fs/promises';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { serveMock } from '../../packages/dashboard/mock/serve.ts';
import { commandProblem } from '../known-command.ts';
import { shippedRules } from '../shipped-rules.ts';
import { buildDashboard } from '../../scripts/lib/dashboard.ts';

const executablePath = findProgram('chromium');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update'];
const TABS = ['logs', 'metrics', 'env', 'data', 'domains', 'hook', 'members', 'settings'];
/** Values for the parameters of the addresses. */
const VALUES: Readonly<Record<string, readonly string[]>> = {
  '/projects/$name': ['/projects/explorer'],
  '/projects/$name/$tab': TABS.map((tab) => `/projects/explorer/${tab}`),
  '/deployments/$id': ['/deployments/dep-explorer-14'],
  '/nodes/$name': ['/nodes/node-b'],
  '/datasets/$name': ['/datasets/stations'],
  '/activity': ['/activity', '/activity?kind=deployment', '/activity?kind=audit'],
};

/** A change of the dashboard: its file, the name of its helper (`call` without one), its route. */
type ChangeName = `${string} ${string} ${RouteName}`;
/** The changes in the sources: `const NAME = useChange('ROUTE'`, and requests without that helper that change something. */
function changesOfSource(): string[] {
  const src = join(repositoryRoot, 'packages/dashboard/src');
  return readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.tsx?$/.test(file))
    .flatMap((file) => {
      const text = readFileSync(join(src, file), 'utf8');
      const found = [...text.matchAll(/(?:const (\w+) = useChange|\b(?:call|exchange))\(\s*'(\w+)'/g)];
      expect(found.filter(([, name]) => name !== undefined).length, `${file}: changes`).toBe([...text.matchAll(/\buseChange\(/g)].length);
      return found
        .filter(([, , route]) => ROUTES[route as RouteName].method !== 'GET')
        .map(([, name = 'call', route = '']) => `${basename(file).replace(/\.tsx?$/, '')} ${name} ${route}`);
    })
    .toSorted();
}

describe.skipIf(executablePath === undefined)('forms of the dashboard', () => {
  let browser: Browser;
  let folder = '';
  let mock: Awaited<ReturnType<typeof serveMock>>;
  let page: Page;
  beforeAll(async () => {
    folder = await buildDashboard(join(repositoryRoot, '.berth', 'dashboard-of-forms'));
    browser = await chromium.launch({ ...(executablePath === undefined ? {} : { executablePath }), args: FLAGS });
  }, 120_000);
  afterAll(() => browser?.close());
  const start = async () => {
    mock = await serveMock(folder);
    page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    page.setDefaultTimeout(20_000);
    return async () => {
      await page.context().close();
      await mock.stop();
    };
  };
  const open = async (path: string): Promise<void> => {
    typed = [];
    await page.goto(mock.url + path);
    await page.locator('h1').waitFor();
    await waitFor(
      'the page has loaded',
      async () => (await page.getByText(/^Loading /).count()) + (await page.locator('[data-ghost]').count()) === 0,
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
  const focusStays = () => page.locator(':focus').first().waitFor({ state: 'attached', timeout: 5_000 });
  const press = (name: string | RegExp) => page.getByRole('button', { name, exact: true }).first().click();

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
  const confirm = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
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
        await page.evaluate(() => localStorage.setItem('berth.sign-in', 'of-this-browser'));
        await open('/?signed-in=of-this-browser');
      },
    },
    { change: 'account call logout', path: '/account', act: () => press('Sign out') },
    {
      change: 'account create createToken',
      path: '/account',
      act: async () => {
        await fill('Name', 'ci');
        await press('Create');
      },
      field: 'name',
    },
    { change: 'account revoke deleteToken', path: '/account', act: () => press('Revoke ci') },
    {
      change: 'account password changePassword',
      path: '/account',
      act: async () => {
        await fill('Current password', 'one long password');
        await fill('New password', 'another long password');
        await press('Change');
      },
      field: 'old_password',
    },

    { change: 'new-project create createProject', path: '/projects/new', act: createProject, field: 'branch' },
    { change: 'new-project call createDeployment', leaves: true, path: '/projects/new', act: createProject },
    {
      change: 'repository call createRepositoryLook',
      path: '/projects/new',
      act: async () => {
        await fill('Git address', 'https://git.example.org/x.git');
        await page.keyboard.press('Tab');
      },
    },
    { change: 'project deploy createDeployment', path: '/projects/explorer', act: () => press('Deploy') },
    { change: 'project restart restartProject', path: '/projects/explorer', act: () => choose('More actions', 'Restart') },
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
    { change: 'deployment rollback rollback', path: '/deployments/dep-explorer-12', act: () => press('Roll back to this') },
    { change: 'deployment cancel cancelDeployment', path: '/deployments/dep-reports-5', act: () => press('Cancel') },

    { change: 'project-tabs putSecret putSecret', path: '/projects/explorer/env', act: setSecret, field: 'value' },
    {
      change: 'project-tabs putEnv putEnv',
      path: '/projects/explorer/env',
      act: async () => {
        await page.getByLabel(/^Secret: /).uncheck();
        await setSecret();
      },
      field: 'name',
    },
    { change: 'project-tabs deleteEnv deleteEnv', path: '/projects/explorer/env', act: () => choose('Actions for TZ', 'Remove') },
    {
      change: 'project-tabs deleteSecret deleteSecret',
      path: '/projects/explorer/env',
      act: () => choose('Actions for DATABASE_URL', 'Delete'),
    },
    {
      change: 'project-tabs add patchProject',
      path: '/projects/explorer/domains',
      act: async () => {
        await fill('Domain', 'www.example.org');
        await press('Add');
      },
      field: 'domains[1]',
    },
    {
      change: 'project-tabs remove patchProject',
      path: '/projects/explorer/domains',
      act: async () => {
        await choose('Actions for explorer.example.com', 'Remove');
        await confirm('Remove');
      },
    },
    { change: 'project-tabs put putHook', path: '/projects/shop/hook', act: () => press('Create the hook') },
    { change: 'project-tabs remove deleteHook', path: '/projects/explorer/hook', act: () => press('Delete the hook') },
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
      change: 'project-tabs save patchProject',
      path: '/projects/explorer/settings',
      act: async () => {
        await fill('Branch', 'next');
        await press('Save');
      },
      field: 'branch',
    },
    {
      change: 'project-tabs remove deleteProject',
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
      change: 'node drain drainNode',
      path: '/nodes/node-b',
      act: async () => {
        await press('Drain …');
        await confirm('Drain');
      },
    },
    { change: 'dataset scan scanDataset', path: '/datasets/stations', act: () => press('Scan now') },
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
      change: 'notifications create createNotification',
      path: '/notifications',
      act: async () => {
        await fill('Name', 'ops');
        await fill('Address', 'https://hooks.example.org');
        await press('Create');
      },
      field: 'target',
    },
    { change: 'notifications test testNotification', path: '/notifications', act: () => choose(/^Actions for /, 'Send a test') },
    { change: 'notifications remove deleteNotification', path: '/notifications', act: () => choose(/^Actions for /, 'Delete') },
    {
      change: 'people create createUser',
      path: '/people',
      act: async () => {
        await fill('E-mail address', 'new@example.org');
        await press('Add');
      },
      field: 'email',
    },
    { change: 'people patch patchUser', path: '/people', act: () => choose('Actions for grace@example.org', 'Make viewer') },
    { change: 'system clean startCleanUp', path: '/system', act: () => press('Clean up now') },
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
    beforeEach(() => async () => {
      await page.unrouteAll({ behavior: 'ignoreErrors' });
      await page.context().clearCookies();
    });

    it('each page has a command to copy, and the command line has all of them', { timeout: 120_000 }, async () => {
      const router = await readFile(join(repositoryRoot, 'packages/dashboard/src/app/router.tsx'), 'utf8');
      const paths = [...router.matchAll(/^ {2}at\('([^']+)'/gm)].flatMap(([, path = '']) => VALUES[path] ?? [path]);
      expect(paths.length).toBeGreaterThan(20);
      const found: Record<string, string[]> = {};
      const wrong: string[] = [];
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
        for (const button of await texts.all()) {
          const line = ((await button.getAttribute('aria-label')) ?? (await button.textContent()) ?? '').replace(
            'Copy the command berth ',
            '',
          );
          const problem = commandProblem([...line.matchAll(/'([^']*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? ''));
          if (problem !== null) wrong.push(`${path}: berth ${line}: ${problem}`);
        }
      }
      expect(wrong).toEqual([]);
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

    const NAMED = ROWS.map((row) => [row.way === undefined ? row.change : `${row.change}, ${row.way}`, row] as const);
    it.each(NAMED)('%s: an error stands at its field, or once on the page', async (_name, row) => {
      const route: Route = ROUTES[row.change.split(' ')[2] as RouteName];
      const address = new RegExp(`^${route.path.replaceAll(/:\w+/g, '[^/]+')}$`);
      let refusal = problemOf(409, '');
      let requests = 0;
      await page.route(/\/api\//, (sent) => {
        if (sent.request().method() !== route.method || !address.test(new URL(sent.request().url()).pathname)) return sent.continue();
        requests += 1;
        return sent.fulfill(refusal);
      });
      if (row.signedOut) await page.context().addCookies([{ name: 'mock_signed_out', value: '1', url: mock.url }]);
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
      await refuse(422, [{ field: row.field, rule: 'test', message: 'breaks the rule of the test' }]);
      await shownOnce('breaks the rule of the test');
      expect(await shown('whole request refused').count()).toBe(0);
      // Programs that read the page aloud find the error by the field.
      expect(await page.locator('[aria-invalid="true"]').count()).toBe(1);
      await nothingIsLost();
      // A field that this form does not have.
      await refuse(422, [{ field: 'other_field', rule: 'test', message: 'breaks another rule' }]);
      await shownOnce('whole request refused');
    });

    it('of two actions the page shows the error of the last one', async () => {
      await page.route(/\/deployments$/, (sent) =>
        sent.request().method() === 'POST' ? sent.fulfill(problemOf(409, 'the first one is refused')) : sent.continue(),
      );
      await page.route(/\/restart$/, (sent) => sent.fulfill(problemOf(409, 'the second one is refused')));
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
    const emptied = (label: string) => waitFor(`${label} is empty`, async () => (await field(label).inputValue()) === '');
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
      await page.getByRole('table', { name: 'Secrets' }).getByText('NEXT', { exact: true }).waitFor();
      expect(await page.getByRole('table', { name: 'Environment variables' }).getByText('NEXT', { exact: true }).count()).toBe(0);
    });

    it.each([
      ['STRIPE_API_KEY', 'x', true],
      ['db_password', 'x', true],
      ['GITHUB_TOKEN', 'x', true],
      ['DATABASE_URL', 'postgres://app:pw@db/app', true],
      ['API_URL', 'https://api.example.org', false],
      ['LOG_LEVEL', 'debug', false],
      ['KEYBOARD', 'de', false],
    ])('a variable %s with %s: the form asks whether it is a secret: %s', async (name, value, asks) => {
      await open('/projects/explorer/env');
      await secretBox().uncheck();
      await fill('Name', name);
      await fill('Value', value);
      const warning = page.getByRole('status').filter({ hasText: /looks like a secret/ });
      await waitFor('the form has decided', async () => (await warning.count()) === (asks ? 1 : 0));
      await secretBox().check();
      await waitFor('a secret needs no warning', async () => (await warning.count()) === 0);
    });

    it('texts of one project are not those of the next one', async () => {
      await open('/projects/shop/env');
      await page.getByRole('table', { name: 'Secrets' }).waitFor();
      await open('/projects/explorer/env');
      // The page of the other project comes from memory, without a moment in which it loads.
      await page.evaluate("history.pushState({}, '', '/projects/shop/env'); dispatchEvent(new PopStateEvent('popstate', { state: {} }))");
      await page.getByRole('heading', { level: 1, name: 'shop', exact: true }).waitFor();
      await page.goBack();
      await page.getByRole('heading', { level: 1, name: 'explorer', exact: true }).waitFor();
      await fill('Name', 'OF_EXPLORER');
      await fill('Value', 'a secret of explorer');
      await page.goForward();
      await page.getByRole('heading', { level: 1, name: 'shop', exact: true }).waitFor();
      expect([await field('Name').inputValue(), await field('Value').inputValue()]).toEqual(['', '']);
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

  describe('a change of somebody else', () => {
    beforeEach(start);
    const api = async (method: string, path: string, body?: object): Promise<Record<string, unknown>> => {
      const init = body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
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

    /** Presses once, and once more if the page says that somebody else was faster: the event of the change may arrive before or after. */
    const untilSaved = async (button: string, isSaved: () => Promise<boolean>): Promise<void> => {
      const told = page.getByText(/^Somebody else changed this meanwhile/).first();
      await press(button);
      await waitFor('it is saved or refused', async () => (await isSaved()) || (await told.isVisible()));
      if (await isSaved()) return;
      await waitFor('it is saved', async () => {
        await page.getByRole('button', { name: button, exact: true }).first().click({ force: true });
        return isSaved();
      });
    };

    /** The page does not read the project, as if each answer came late. Returns the function that ends this. */
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
        .filter({ hasText: /branch: theirs\s*"theirs", yours\s*"mine"/ })
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
      await waitFor('mine is saved', async () => ((await project())['env'] as Record<string, string>)['MODE'] === 'mine');
    });

    it('of the domains: theirs stay, and what is typed too', async () => {
      await open('/projects/explorer/domains');
      await fill('Domain', 'mine.example.org');
      const before = (await project())['domains'] as string[];
      await api('PATCH', '', { domains: [...before, 'theirs.example.org'] });
      await untilSaved('Add', async () => ((await project())['domains'] as string[]).includes('mine.example.org'));
      expect((await project())['domains']).toEqual([...before, 'theirs.example.org', 'mine.example.org']);
    });

    describe('of the members', () => {
      const GRACE = { user_id: 'u-grace', role: 'developer' };
      const VERA = { user_id: 'u-vera', role: 'viewer' };
      const set = (...members: object[]) => api('PATCH', '', { members });
      const members = async (): Promise<unknown> => (await project())['members'];
      const rowOf = (email: string, role: string) => page.getByRole('row').filter({ hasText: email }).filter({ hasText: role }).waitFor();
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
        await waitFor('mine is saved', async () => JSON.stringify(await members()) === JSON.stringify([VERA]));
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
        await waitFor('one is left', async () => JSON.stringify(await members()) === JSON.stringify([{ ...VERA, role: 'developer' }]));
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
        await waitFor('only theirs is left', async () => JSON.stringify(await members()) === JSON.stringify([VERA]));
      });
    });
  });
});
