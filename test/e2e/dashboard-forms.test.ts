/** Forms of the dashboard in Chromium, with the mock of the API: errors, changes of somebody else, commands to copy. */
import { join } from 'node:path';
import { readFile } from 'node:fs/promises';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import { serveMock } from '../../packages/dashboard/mock/serve.ts';
import { commandProblem } from '../known-command.ts';
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
  beforeEach(async () => {
    mock = await serveMock(folder);
    page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    page.setDefaultTimeout(20_000);
    return async () => {
      await page.context().close();
      await mock.stop();
    };
  });
  const open = async (path: string): Promise<void> => {
    await page.goto(mock.url + path);
    await page.locator('h1').waitFor();
    await waitFor(
      'the page has loaded',
      async () => (await page.getByText(/^Loading /).count()) + (await page.locator('[data-ghost]').count()) === 0,
    );
  };
  /** A required field has a star after its label. */
  const fill = (label: string, text: string) =>
    page
      .getByLabel(new RegExp(`^${label}( \\*)?$`))
      .first()
      .fill(text);
  const press = (name: string | RegExp) => page.getByRole('button', { name, exact: true }).first().click();

  it('each page has a command to copy, and the command line has all of them', { timeout: 120_000 }, async () => {
    const router = await readFile(join(repositoryRoot, 'packages/dashboard/src/app/router.tsx'), 'utf8');
    const paths = [...router.matchAll(/^ {2}at\('([^']+)'/gm)].flatMap(([, path = '']) => VALUES[path] ?? [path]);
    expect(paths.length).toBeGreaterThan(20);
    const found: Record<string, string[]> = {};
    const wrong: string[] = [];
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
  });

  type Row = {
    path: string;
    /** Fills the form and sends it, or does the action. */
    act: () => Promise<void>;
    request: RegExp;
    /** The field that the form has; undefined: it has none. */
    field?: string;
  };
  const choose = async (menu: string | RegExp, item: string): Promise<void> => {
    await page.getByRole('button', { name: menu }).first().click();
    await page.getByRole('menuitem', { name: item }).click();
  };
  const confirm = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
  const ROWS: Record<string, Row> = {
    createProject: {
      path: '/projects/new',
      act: async () => {
        await fill('Git address', 'https://git.example.org/x.git');
        await press('Create and deploy');
      },
      request: /^POST \/api\/projects$/,
      field: 'branch',
    },
    patchProject: {
      path: '/projects/explorer/settings',
      act: async () => {
        await fill('Branch', 'next');
        await press('Save');
      },
      request: /^PATCH \/api\/projects\//,
      field: 'branch',
    },
    deleteProject: {
      path: '/projects/explorer/settings',
      act: async () => {
        await press('Delete …');
        await fill('Type explorer to confirm', 'explorer');
        await confirm('Delete');
      },
      request: /^DELETE \/api\/projects\//,
    },
    putSecret: {
      path: '/projects/explorer/env',
      act: async () => {
        await fill('Name', 'KEY');
        await fill('Value', 'x');
        await press('Save');
      },
      request: /^PUT .*\/secrets\//,
      field: 'value',
    },
    putEnv: {
      path: '/projects/explorer/env',
      act: async () => {
        await page.getByLabel(/^Secret: /).uncheck();
        await fill('Name', 'KEY');
        await fill('Value', 'x');
        await press('Save');
      },
      request: /^PUT .*\/env\//,
      field: 'name',
    },
    domains: {
      path: '/projects/explorer/domains',
      act: async () => {
        await fill('Domain', 'www.example.org');
        await press('Add');
      },
      request: /^PATCH \/api\/projects\//,
      field: 'domains[1]',
    },
    deleteHook: { path: '/projects/explorer/hook', act: () => press('Delete the hook'), request: /^DELETE .*\/hook$/ },
    createNotification: {
      path: '/notifications',
      act: async () => {
        await fill('Name', 'ops');
        await fill('Address', 'https://hooks.example.org');
        await press('Create');
      },
      request: /^POST \/api\/notifications$/,
      field: 'target',
    },
    deleteNotification: { path: '/notifications', act: () => choose(/^Actions for /, 'Delete'), request: /^DELETE \/api\/notifications\// },
    createUser: {
      path: '/people',
      act: async () => {
        await fill('E-mail address', 'new@example.org');
        await press('Add');
      },
      request: /^POST \/api\/users$/,
      field: 'email',
    },
    createToken: {
      path: '/account',
      act: async () => {
        await fill('Name', 'ci');
        await press('Create');
      },
      request: /^POST \/api\/tokens$/,
      field: 'name',
    },
    changePassword: {
      path: '/account',
      act: async () => {
        await fill('Current password', 'one long password');
        await fill('New password', 'another long password');
        await press('Change');
      },
      request: /^(POST|PUT|PATCH) .*password/,
      field: 'old_password',
    },
    logout: { path: '/account', act: () => press('Sign out'), request: /^POST \/api\/auth\/logout$/ },
    createDeployment: { path: '/projects/explorer', act: () => press('Deploy'), request: /^POST .*\/deployments$/ },
    stopProject: {
      path: '/projects/explorer',
      act: async () => {
        await choose('More actions', 'Stop');
        await confirm('Stop');
      },
      request: /^POST .*\/stop$/,
    },
    rollback: {
      path: '/projects/explorer',
      act: () => choose('More actions', 'Roll back to the release before'),
      request: /^POST .*\/rollback$/,
    },
    cordonNode: { path: '/nodes/node-b', act: () => press(/^(Cordon|Uncordon)$/), request: /^POST .*cordon$/ },
    scanDataset: { path: '/datasets/stations', act: () => press('Scan now'), request: /^POST .*\/scan$/ },
  };

  it.each(Object.entries(ROWS))('%s: an error stands at its field, or once on the page', async (_name, { path, act, request, field }) => {
    let refusal: { status: number; body: object } = { status: 500, body: {} };
    let requests = 0;
    await page.route(/\/api\//, (route) => {
      const sent = route.request();
      if (!request.test(`${sent.method()} ${new URL(sent.url()).pathname}`)) return route.continue();
      requests += 1;
      return route.fulfill({ status: refusal.status, contentType: 'application/problem+json', body: JSON.stringify(refusal.body) });
    });
    const refuse = async (status: number, errors: object[]): Promise<void> => {
      const problem = { type: 'about:blank', title: 'No', status, detail: 'whole request refused', code: 'validation', request_id: 'r' };
      refusal = { status, body: { ...problem, ...(errors.length === 0 ? {} : { errors }) } };
      requests = 0;
      await open(path);
      await act();
      await waitFor('the request is sent', async () => requests > 0);
    };
    const shown = (text: string) => page.getByText(text).filter({ visible: true });
    await refuse(409, []);
    await shown('whole request refused').first().waitFor();
    expect(await shown('whole request refused').count()).toBe(1);
    if (field === undefined) return;
    await refuse(422, [{ field, rule: 'test', message: 'breaks the rule of the test' }]);
    await shown('breaks the rule of the test').first().waitFor();
    expect(await shown('breaks the rule of the test').count()).toBe(1);
    expect(await shown('whole request refused').count()).toBe(0);
    // Programs that read the page aloud find the error by the field.
    expect(await page.locator('[aria-invalid="true"]').count()).toBe(1);
    // A field that this form does not have.
    await refuse(422, [{ field: 'other_field', rule: 'test', message: 'breaks another rule' }]);
    await shown('whole request refused').first().waitFor();
    expect(await shown('whole request refused').count()).toBe(1);
  });

  describe('a change of somebody else', () => {
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
      await press('Save');
      await waitFor('mine is saved', async () => (await project())['branch'] === 'mine');
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
  });
});
