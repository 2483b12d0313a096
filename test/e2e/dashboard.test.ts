/**
 * The dashboard in Chromium, with the real control plane, agents, engine and Traefik. Pictures:
 * `npm run pictures -- pages`.
 */
import { cp, readdir, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project } from '@berth/wire/project';
import { defined } from '@berth/kit/defined';
import { repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import { serveMock } from '../../packages/dashboard/mock/serve.ts';
import { buildDashboard } from '../../scripts/lib/dashboard.ts';
import { launchChromium, whyNoChromium } from './chromium.ts';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const reason = whyNoChromium() ?? (await whyNot('traefik'));
/** A restart or an upgrade of the machine. */
const ABSENCE_MS = 20_000;
const DEVELOPER = { email: 'developer@example.org', password: 'another long password' };
const VIEWER = { email: 'viewer@example.org', password: 'a long enough password' };

describe.skipIf(reason !== undefined)(
  `dashboard in Chromium${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: World;
    let chromium: Awaited<ReturnType<typeof launchChromium>>;
    let browser: Browser;
    let page: Page;
    let project: Project;
    let folder = '';
    /** The build of the next version. */
    let next = '';
    let mock: Awaited<ReturnType<typeof serveMock>>;
    let awaySince = 0;
    const errors: string[] = [];
    /** Exact: `shop` is part of `shop #1`, the heading of another page. */
    const heading = (name: string) => page.getByRole('heading', { level: 1, name, exact: true });
    const signIn = async (
      of: Page,
      { email, password }: { email: string; password: string },
    ): Promise<void> => {
      await of.getByLabel('E-mail address').fill(email);
      await of
        .getByLabel(/^Password/)
        .first()
        .fill(password);
      await of.getByRole('button', { name: 'Sign in' }).click();
    };
    const fresh = async (options: Parameters<Browser['newPage']>[0] = {}): Promise<Page> => {
      const opened = await browser.newPage({ viewport: { width: 1400, height: 900 }, ...options });
      opened.setDefaultTimeout(20_000);
      opened.on('pageerror', (error) => errors.push(String(error)));
      opened.on('console', (message) => {
        if (message.type() === 'error' && /Content Security Policy|React/.test(message.text()))
          errors.push(message.text());
      });
      return opened;
    };

    /** Makes `to` a copy of the build `from`, as an upgrade replaces the files. */
    const replace = async (to: string, from: string): Promise<void> => {
      await rm(to, { recursive: true, force: true });
      await cp(from, to, { recursive: true });
    };

    beforeAll(async () => {
      folder = await buildDashboard(join(repositoryRoot, '.berth', 'dashboard-of-tests'));
      mock = await serveMock(folder);
      world = await startWorld({
        proxy: 'traefik',
        env: { DASHBOARD_DIR: folder },
        agentEnv: { ALLOW_EXEC: 'true' },
      });
      await world.berth.api.call('createUser', { body: { ...VIEWER, role: 'viewer' } });
      await world.berth.api.call('createUser', { body: { ...DEVELOPER, role: 'developer' } });
      chromium = await launchChromium();
      browser = chromium.browser;
      page = await fresh();
    });
    afterAll(async () => {
      await chromium?.close();
      await mock?.stop();
      await world?.stop();
    });

    it('the first page has at most 260 KiB', async () => {
      const opened = await fresh();
      const transfers: Promise<number>[] = [];
      opened.on('requestfinished', (request) => {
        transfers.push(request.sizes().then(({ responseBodySize }) => responseBodySize));
      });
      await opened.goto(`${world.berth.url}/projects`);
      await opened.getByLabel('E-mail address').waitFor();
      await opened.waitForLoadState('networkidle');
      const bytes = (await Promise.all(transfers)).reduce((sum, size) => sum + size, 0);
      const paint = await opened.evaluate<number>(
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0",
      );
      console.log(
        `first page: ${(bytes / 1024).toFixed(1)} KiB in ${transfers.length} requests, first ` +
          `paint after ${Math.round(paint)} ms`,
      );
      expect(bytes).toBeGreaterThan(50 * 1024);
      expect(bytes).toBeLessThan(260 * 1024);
      await opened.close();
    });

    it('asks for a sign-in, and keeps the address', async () => {
      await page.goto(`${world.berth.url}/projects`);
      await signIn(page, { ...world.berth.admin, password: 'not the password' });
      await page.getByText('wrong').first().waitFor();
      await signIn(page, world.berth.admin);
      await heading('Projects').waitFor();
      await page.getByText('No projects yet').waitFor();
      expect(await page.evaluate('document.cookie')).toBe('');
    });

    it('creates and deploys a project with the mouse, and shows each step without a reload', async () => {
      const { url } = await world.git.createRepo('shop', pageApp(1));
      await page.getByRole('button', { name: 'New project' }).click();
      await page.getByLabel('Git address').fill(url);
      expect(await page.getByRole('textbox', { name: 'Name' }).inputValue()).toBe('shop');
      // The builder's finding becomes the proposal, but not for a field in which somebody typed.
      await page.getByLabel('Branch').fill('main');
      await page.getByLabel('Container port').fill('8080');
      await page.getByText('Found 1 branch and, on main, 1 Dockerfile.').waitFor();
      expect(
        await page
          .locator('datalist option')
          .evaluateAll((all) => all.map((each) => (each as unknown as { value: string }).value)),
      ).toEqual(['main', 'Dockerfile']);
      expect(await page.getByLabel('Container port').inputValue()).toBe('8080');
      await page.getByRole('button', { name: 'Create and deploy' }).click();
      await heading('shop #1').waitFor();
      await page.getByText('running').first().waitFor({ timeout: 90_000 });
      await page.getByRole('heading', { name: 'Why node-1' }).waitFor();
      await page.getByRole('heading', { name: 'The switch' }).waitFor();
      await page
        .getByRole('log')
        .getByText(/COPY www/)
        .first()
        .waitFor();
      project = await world.berth.api.call('getProject', { params: { id: 'shop' } });
      expect((await world.berth.get('shop')).body).toContain('version 1');
    });

    it('does the same by keyboard alone', async () => {
      await world.git.commit('shop', pageApp(2), 'version 2');
      await page.keyboard.press('Control+k');
      await page.getByLabel('Name of a page, project, node or dataset').waitFor();
      await page.keyboard.type('shop');
      await page
        .getByRole('status')
        .filter({ hasText: 'found; shop' })
        .waitFor({ state: 'attached' });
      await page.keyboard.press('Enter');
      await heading('shop').waitFor();
      const focused = (): Promise<string> =>
        page.evaluate("document.activeElement?.textContent ?? ''");
      await waitFor('the heading has the focus', async () => (await focused()) === 'shop');
      await page.getByRole('button', { name: 'Deploy', exact: true }).waitFor();
      for (let i = 0; i < 10 && (await focused()) !== 'Deploy'; i++)
        await page.keyboard.press('Tab');
      expect(await focused()).toBe('Deploy');
      await page.keyboard.press('Enter');
      await heading('shop #2').waitFor();
      await page.getByText('running').first().waitFor({ timeout: 90_000 });
    });

    it('has a console in a container: off until an admin allows it, with keys, size and exit code', async () => {
      const { api } = world.berth;
      const tab = await fresh();
      await tab.context().addCookies(await page.context().cookies());
      await tab.goto(`${world.berth.url}/projects/${project.name}/console`);
      await tab.getByText('are switched off').waitFor();
      await api.call('patchProject', { params: project, body: { allow_exec: true } });
      await tab.getByRole('button', { name: 'Start' }).click();
      const terminal = tab.locator('.xterm-rows');
      const shows = (text: string): Promise<unknown> =>
        waitFor(`the terminal shows ${text}`, async () =>
          (await terminal.innerText()).includes(text),
        );
      await shows('#');
      await tab.keyboard.type('echo sum-$((40 + 2)); stty size\n');
      await shows('sum-42');
      expect(await terminal.innerText()).toMatch(/\b[1-9]\d (?:[5-9]\d|1\d\d)\b/);
      await tab.keyboard.press('Shift+Escape');
      expect(await tab.evaluate('document.activeElement.textContent')).toBe('End the session');
      await tab.locator('.xterm-helper-textarea').focus();
      await tab.keyboard.type('exit 3\n');
      await tab.getByText('The command ended with exit code 3.').waitFor();
      await tab.getByRole('button', { name: 'Start again' }).waitFor();
      await api.call('patchProject', { params: project, body: { allow_exec: false } });
      await tab.close();
    });

    it('shows a change of another client within seconds, on a page that nobody touches', async () => {
      await page.goto(`${world.berth.url}/projects/shop`);
      await page.getByText('version 2').first().waitFor();
      const row = page.getByRole('link', { name: '#2' });
      await row.focus();
      await world.berth.api.call('stopProject', { params: project });
      await page.getByText('Stopped. Its address answers 503').waitFor({ timeout: 5_000 });
      expect(await row.evaluate((element) => element === element.ownerDocument.activeElement)).toBe(
        true,
      );
      await world.berth.settled(await world.berth.api.call('startProject', { params: project }));
      await page.getByText(/^healthy: serves/).waitFor();
    });

    it('says that the control plane is away, and keeps what it knows and what is typed', async () => {
      await page.goto(`${world.berth.url}/projects/shop/settings`);
      await page.getByLabel('Branch').fill('release');
      await world.berth.controlPlane.crash();
      awaySince = Date.now();
      await page.locator('[data-banner="away"]').waitFor();
      await heading('shop').waitFor();
    });

    // Meanwhile these tests use the mock of the API.
    it('without JavaScript the page says what to do', async () => {
      const context = await browser.newContext({ javaScriptEnabled: false });
      const plain = await context.newPage();
      await plain.goto(mock.url);
      await plain.locator('noscript').waitFor();
      expect(await plain.locator('noscript').innerText()).toContain(
        'The dashboard of Berth needs JavaScript',
      );
      await context.close();
    });

    it('on a slow network it says that it waits, answers the keyboard, and sends no change twice', async () => {
      const slow = await fresh();
      await slow.goto(`${mock.url}/projects/new`);
      await slow.getByLabel('Git address').fill('https://git.example.org/team/slowly.git');
      const network = await slow.context().newCDPSession(slow);
      await network.send('Network.enable');
      const conditions = {
        offline: false,
        latency: 800,
        downloadThroughput: 60_000,
        uploadThroughput: 60_000,
      };
      await network.send('Network.emulateNetworkConditions', conditions);
      const changes: string[] = [];
      slow.on('request', (request) => {
        const path = new URL(request.url()).pathname;
        // A look into the repository changes nothing.
        if (request.method() === 'POST' && path !== '/api/repository-looks')
          changes.push(path.replace(/p-[^/]*/, 'ID'));
      });
      await slow.getByRole('button', { name: 'Create and deploy' }).dblclick();
      await slow.getByRole('textbox', { name: 'Name' }).press('Enter');
      expect(
        await slow.getByRole('button', { name: 'Create and deploy' }).getAttribute('aria-busy'),
      ).toBe('true');
      await slow.getByRole('heading', { level: 1, name: 'slowly #1' }).waitFor();
      await slow.getByRole('link', { name: 'Routes' }).click();
      await slow
        .getByRole('status')
        .filter({ hasText: 'Loading' })
        .first()
        .waitFor({ state: 'attached' });
      await slow.keyboard.press('?');
      await slow.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
      await slow.keyboard.press('Escape');
      await slow.getByRole('heading', { level: 1, name: 'Routes' }).waitFor();
      await network.send('Network.emulateNetworkConditions', {
        ...conditions,
        latency: 0,
        downloadThroughput: -1,
      });
      await slow.goto(`${mock.url}/account`);
      await slow.getByRole('textbox', { name: 'Name' }).fill('ci');
      await network.send('Network.emulateNetworkConditions', conditions);
      await slow.keyboard.press('Enter');
      await slow.keyboard.press('Enter');
      await slow.getByText('Copy the token now').waitFor();
      expect(changes).toEqual(['/api/projects', '/api/projects/ID/deployments', '/api/tokens']);
      await slow.context().close();
    });

    it('the files of two versions differ by their names: the changed page, and the first script that leads to it', async () => {
      next = await buildDashboard(
        join(repositoryRoot, '.berth', 'dashboard-of-tests-next'),
        join(import.meta.dirname, 'dashboard-next.vite.ts'),
      );
      const [before, after] = await Promise.all(
        [folder, next].map((of) => readdir(join(of, 'assets'))),
      );
      const of = (files: readonly string[] = [], name: string): string[] =>
        files.filter((file) => file.startsWith(name) && file.endsWith('.js'));
      for (const name of ['datasets-', 'index-']) {
        expect(of(before, name), name).toHaveLength(1);
        expect(of(after, name), name).toHaveLength(1);
        expect(of(after, name), name).not.toEqual(of(before, name));
      }
    });

    it('a tab of the version before asks for a reload when a page of it is gone, keeps what is typed, and shows the new version then', async () => {
      const served = `${folder}-served`;
      await replace(served, folder);
      const upgraded = await serveMock(served);
      const tab = await fresh();
      await tab.goto(`${upgraded.url}/projects/explorer/settings`);
      await tab.getByLabel('Branch').fill('release');
      await replace(served, next);
      const gone = tab.waitForResponse((response) =>
        /\/assets\/datasets-.*\.js$/.test(response.url()),
      );
      await tab.getByRole('link', { name: 'Datasets' }).hover();
      expect((await gone).status()).toBe(404);
      const reload = tab
        .locator('[data-banner="outdated"]')
        .getByRole('button', { name: 'Reload' });
      await reload.waitFor();
      expect(await tab.getByLabel('Branch').inputValue()).toBe('release');
      await reload.click();
      await reload.waitFor({ state: 'detached' });
      await tab.getByRole('link', { name: 'Datasets' }).click();
      await tab.getByRole('heading', { level: 1, name: 'Datasets', exact: true }).waitFor();
      expect(await tab.evaluate('document.documentElement.dataset.version')).toBe('next');
      await tab.context().close();
      await upgraded.stop();
    });

    it('all that the mouse does works by keyboard: shortcuts, palette, announced pages, the order of the focus', async () => {
      // A mock of its own: the tests before changed the data of the other one.
      const made = await serveMock(folder);
      const keys = await fresh({ reducedMotion: 'reduce' });
      await keys.goto(made.url);
      await keys.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
      await keys.keyboard.press('g');
      await keys.keyboard.press('n');
      await keys
        .getByRole('status')
        .filter({ hasText: /^Nodes$/ })
        .waitFor({ state: 'attached' });
      await waitFor('the heading has the focus', () =>
        keys.evaluate<boolean>("document.activeElement?.tagName === 'H1'"),
      );
      const search = keys.getByRole('button', { name: /^Search/ });
      await search.focus();
      await keys.keyboard.press('Enter');
      const field = keys.getByLabel('Name of a page, project, node or dataset');
      await field.waitFor();
      // Letters in a field are text.
      await field.pressSequentially('g p?');
      expect(await field.inputValue()).toBe('g p?');
      await keys.keyboard.press('Escape');
      await field.waitFor({ state: 'detached' });
      await waitFor('the focus is back', () =>
        search.evaluate((element) => element === element.ownerDocument.activeElement),
      );
      const orders: string[] = [
        'The order of the focus by Tab: role and name of each stop. With the made-up data of ' +
          '`npm run dashboard`.',
      ];
      for (const path of [
        '/',
        '/projects',
        '/projects/new',
        '/projects/explorer',
        '/projects/explorer/env',
        '/projects/storefront/metrics',
        '/deployments/dep-explorer-14',
      ]) {
        await keys.goto(made.url + path);
        await loaded(keys);
        const stops = await focusOrder(keys);
        // The values of a chart depend on the time.
        orders.push(
          '',
          path,
          ...stops.map((stop) => stop.replace(/^(slider: .*: time)\..*/, '$1')),
        );
      }
      await expect(`${orders.join('\n')}\n`).toMatchFileSnapshot('./dashboard-focus-order.txt');
      await keys.context().addCookies([{ name: 'mock_scenario', value: 'slow', url: made.url }]);
      await keys.goto(made.url);
      await keys.getByText('Loading Berth').waitFor();
      await waitFor('nothing moves', () =>
        keys.evaluate<boolean>(
          "document.getAnimations().every(({ playState }) => playState !== 'running')",
        ),
      );
      await keys.context().close();
      await made.stop();
    });

    it('after 20 s it recovers by itself; after an upgrade it asks for a reload, and nothing typed is lost', async () => {
      await waitFor(
        'the absence is over',
        () => Promise.resolve(Date.now() - awaySince > ABSENCE_MS),
        { deadlineMs: 2 * ABSENCE_MS },
      );
      const said = await page.locator('[data-banner="away"]').textContent();
      await world.berth.controlPlane.start({ DASHBOARD_DIR: next });
      await page.locator('[data-banner="away"]').waitFor({ state: 'detached' });
      await page.locator('[data-banner="outdated"]').waitFor();
      expect(said).toMatch(/No answer for \d/);
      expect(await page.getByLabel('Branch').inputValue()).toBe('release');
    });

    it('shows the change of somebody else beside the own one', async () => {
      await world.berth.api.call('patchProject', { params: project, body: { branch: 'stable' } });
      await page.getByText('Somebody else changed this project meanwhile').waitFor();
      await page.getByRole('button', { name: 'Take theirs' }).click();
      expect(await page.getByLabel('Branch').inputValue()).toBe('stable');
      await world.berth.api.call('patchProject', { params: project, body: { branch: 'main' } });
    });

    it('asks for the password again when the session ends, and loses no typed text', async () => {
      await page.getByLabel('Dockerfile').fill('Dockerfile.prod');
      const me = await page.evaluate(
        async () => (await fetch('/api/auth/logout', { method: 'POST' })).status,
      );
      expect(me).toBe(204);
      await page.getByText('Your session ended').waitFor({ timeout: 30_000 });
      await page
        .getByRole('dialog')
        .getByLabel(/^Password/)
        .fill(world.berth.admin.password);
      await page.getByRole('dialog').getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('Your session ended').waitFor({ state: 'detached' });
      expect(await page.getByLabel('Dockerfile').inputValue()).toBe('Dockerfile.prod');
    });

    it('a viewer reads why an action is not possible; pages for admins say so', async () => {
      const viewer = await fresh();
      await viewer.goto(`${world.berth.url}/projects/shop`);
      await signIn(viewer, VIEWER);
      const deploy = viewer.getByRole('button', { name: 'Deploy', exact: true });
      await deploy.waitFor();
      expect(await deploy.getAttribute('aria-disabled')).toBe('true');
      expect(
        await viewer
          .locator(`[id="${await deploy.getAttribute('aria-describedby')}"]`)
          .textContent(),
      ).toContain('your role is viewer');
      await viewer.goto(`${world.berth.url}/people`);
      await viewer.getByText('Only admins see this page').waitFor();
      await viewer.close();
    });

    it('a line of a log has an address, and a search shows the lines around a match', async () => {
      const log = page.getByRole('log').first();
      await page.goto(
        `${world.berth.url}/deployments/` +
          ((await world.berth.api.call('listDeployments', { query: {} })).items.at(-1)?.id ?? ''),
      );
      const line = log.locator('.log-line').filter({ hasText: 'COPY www' }).first();
      await line.hover();
      await line.getByRole('link', { name: 'Link to this line' }).click();
      expect(page.url()).toMatch(/#L\d+$/);
      await page.reload();
      await log.locator('.log-line.linked').filter({ hasText: 'COPY www' }).waitFor();
      await page.getByLabel('Find in the log').first().fill('/copy W+/i');
      await page
        .getByText(/^[1-9]\d* of \d+ lines/)
        .first()
        .waitFor();
      const alone = await log.locator('.log-line').count();
      await page.getByLabel('Around a match').selectOption('± 3 lines');
      await waitFor(
        'lines around the match',
        async () => (await log.locator('.log-line').count()) > alone,
      );
      await log.locator('.log-line.match').first().waitFor();
      await page.goto(`${page.url().replace(/#.*$/, '')}#L999999`);
      await page.reload();
      await page.getByText('The line of the link is not among these lines').waitFor();
    });

    it('an admin restricts a project to a member; for a developer who is none it does not exist', async () => {
      await page.goto(`${world.berth.url}/projects/shop/members`);
      await page.getByText('Every user sees this project').waitFor();
      await page.getByLabel('Person').selectOption(VIEWER.email);
      await page.getByLabel('Role in this project').selectOption('viewer: reads');
      await page.getByRole('button', { name: 'Add', exact: true }).click();
      await page.getByRole('row', { name: new RegExp(VIEWER.email) }).waitFor();
      const context = await browser.newContext();
      const developer = await context.newPage();
      await developer.goto(`${world.berth.url}/projects/shop`);
      await signIn(developer, DEVELOPER);
      await developer.getByRole('heading', { level: 1, name: 'Not found' }).waitFor();
      await developer.goto(`${world.berth.url}/projects`);
      await developer.getByText('No projects yet').waitFor();
      await developer.getByRole('button', { name: 'New project' }).waitFor();
      const member = await (await browser.newContext()).newPage();
      await member.goto(`${world.berth.url}/projects/shop`);
      await signIn(member, VIEWER);
      await member.getByRole('heading', { level: 1, name: 'shop' }).waitFor();
      // The page of the developer is not reloaded: the project appears when the restriction ends.
      await page.getByRole('button', { name: `Actions for ${VIEWER.email}` }).click();
      await page.getByRole('menuitem', { name: 'Remove' }).click();
      await page.getByText('Without a member every user sees shop').waitFor();
      await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
      await page.getByText('No members.').waitFor();
      await developer.getByRole('link', { name: 'shop', exact: true }).first().waitFor();
      await developer.goto(`${world.berth.url}/projects/shop`);
      const deploy = developer.getByRole('button', { name: 'Deploy', exact: true });
      await deploy.waitFor();
      expect(await deploy.getAttribute('aria-disabled')).toBe(null);
      await member.context().close();
      await context.close();
    });

    it('a page follows a role that changes and a project that somebody deletes', async () => {
      const context = await browser.newContext();
      const tab = await context.newPage();
      const { id } = await world.berth.api.call('createProject', {
        body: {
          name: 'doomed',
          domain_prefix: 'doomed',
          git_url: 'https://git.example.org/team/doomed.git',
        },
      });
      await tab.goto(`${world.berth.url}/projects/doomed/settings`);
      await signIn(tab, DEVELOPER);
      const deploy = tab.getByRole('button', { name: 'Deploy', exact: true });
      await tab.getByLabel('Branch').fill('release');
      const [developer] = (await world.berth.api.call('listUsers', { query: {} })).items.filter(
        ({ email }) => email === DEVELOPER.email,
      );
      if (developer === undefined) throw new Error('no developer');
      const change = (role: 'viewer' | 'developer') =>
        world.berth.api.call('patchUser', { params: developer, body: { role } });
      await change('viewer');
      await waitFor(
        'a viewer cannot deploy',
        async () => (await deploy.getAttribute('aria-disabled')) === 'true',
      );
      expect(await tab.getByLabel('Branch').inputValue()).toBe('release');
      await change('developer');
      await waitFor(
        'a developer can deploy',
        async () => (await deploy.getAttribute('aria-disabled')) === null,
      );
      await world.berth.api.call('deleteProject', { params: { id }, query: {} });
      await tab.getByRole('heading', { level: 1, name: 'Not found' }).waitFor();
      await context.close();
    });

    it('a token of one project sees no other', async () => {
      await page.goto(`${world.berth.url}/account`);
      const limits = page.getByRole('combobox', { name: 'Only these projects' });
      await page.getByRole('textbox', { name: 'Name' }).fill('ci of shop');
      await limits.fill('no-such-project');
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('item 1: no project has this id or name').waitFor();
      await limits.press('Backspace');
      await limits.fill('shop');
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByText('Copy the token now').waitFor();
      await page.getByRole('row', { name: /ci of shop.*shop/ }).waitFor();
    });

    it('no page has a serious finding of axe, light and dark, wide and narrow; none is wider than the window at 200 % and 400 %', async () => {
      const { items } = await world.berth.api.call('listDeployments', { query: {} });
      const [node] = (await world.berth.api.call('listNodes', { query: {} })).items;
      const pages = {
        overview: '/',
        projects: '/projects',
        'new-project': '/projects/new',
        project: '/projects/shop',
        'project-logs': '/projects/shop/logs',
        'project-metrics': '/projects/shop/metrics',
        'project-jobs': '/projects/shop/jobs',
        'project-runs': '/projects/shop/runs',
        'project-console': '/projects/shop/console',
        'project-env': '/projects/shop/env',
        'project-data': '/projects/shop/data',
        'project-domains': '/projects/shop/domains',
        'project-hook': '/projects/shop/hook',
        'project-members': '/projects/shop/members',
        'project-settings': '/projects/shop/settings',
        deployment: `/deployments/${items[0]?.id ?? ''}`,
        nodes: '/nodes',
        node: `/nodes/${node?.id ?? ''}`,
        datasets: '/datasets',
        routes: '/routes',
        activity: '/activity',
        notifications: '/notifications',
        people: '/people',
        system: '/system',
        account: '/account',
        'not-found': '/no/such/page',
      };
      const findings: string[] = [];
      const context = await browser.newContext({
        viewport: { width: 1400, height: 900 },
        storageState: await page.context().storageState(),
        // axe is no script of the page. It must not see colors on their way from one look to the
        // other.
        bypassCSP: true,
        reducedMotion: 'reduce',
      });
      const opened = await context.newPage();
      for (const [name, path] of Object.entries(pages)) {
        await opened.goto(world.berth.url + path);
        await loaded(opened);
        for (const [scheme, width] of [
          ['light', 1400],
          ['dark', 1400],
          ['dark', 360],
          ['light', 360],
        ] as const) {
          await opened.emulateMedia({ colorScheme: scheme });
          await opened.setViewportSize({ width, height: 900 });
          // The scheme changes nothing but the colors: the other rules look once at each width.
          const rules = (scheme === 'light') === (width === 1400) ? undefined : COLOR_RULES;
          findings.push(
            ...(await seriousFindings(opened, rules)).map(
              (text) => `${name} ${scheme} ${width}: ${text}`,
            ),
          );
        }
        // WCAG 2.2, 1.4.10: a window of 1280 px at 400 % and 200 %.
        for (const width of [320, 640, 1400]) {
          await opened.setViewportSize({ width, height: 900 });
          if (
            await opened.evaluate<boolean>('document.documentElement.scrollWidth > innerWidth + 1')
          )
            findings.push(`${name} ${width}: wider than the window`);
        }
      }
      await context.close();
      expect(findings).toEqual([]);
      // Four looks of each page take 40 s on a quiet machine.
    }, 300_000);

    it('no script failed, and the policy blocked nothing', () => expect(errors).toEqual([]));
  },
);

const axe = readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** The rules of axe that compare colors, apart from those that it runs only on request. */
const COLOR_RULES = ['color-contrast', 'link-in-text-block'];
async function seriousFindings(page: Page, rules?: readonly string[]): Promise<string[]> {
  if (!(await page.evaluate<boolean>("typeof axe === 'object'"))) await page.evaluate(await axe);
  const options = {
    resultTypes: ['violations'],
    // Without it, axe reads all styles and media again, for rules about videos.
    preload: false,
    ...defined({ runOnly: rules === undefined ? undefined : { type: 'rule', values: rules } }),
  };
  return page.evaluate(async (how) => {
    type Finding = { id: string; impact: string; nodes: { html: string }[] };
    const run = (
      globalThis as unknown as { axe: { run(options: object): Promise<{ violations: Finding[] }> } }
    ).axe;
    const { violations } = await run.run(how);
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }) => `${id}: ${nodes[0]?.html.slice(0, 160) ?? ''}`);
  }, options);
}

async function loaded(page: Page): Promise<void> {
  await page.locator('h1').waitFor();
  await waitFor(
    'the page has loaded',
    async () =>
      (await page.getByText(/^Loading /).count()) +
        (await page.locator('[data-skeleton]').count()) ===
      0,
  );
}

/** Presses Tab until the focus leaves the page. */
async function focusOrder(page: Page): Promise<string[]> {
  const stops: string[] = [];
  await page.evaluate("document.querySelector('.skip-link').focus()");
  for (let stop = 0; stop < 100; stop++) {
    if (stop > 0) await page.keyboard.press('Tab');
    const found = await page.evaluate<string | null>(`(() => {
      const element = document.activeElement;
      if (element === null || element === document.body) return null;
      const label = element.labels?.[0]?.textContent ?? element.getAttribute('aria-label') ?? element.textContent;
      const role = element.getAttribute('role') ?? element.tagName.toLowerCase();
      return role + ': ' + label.replace(/\\s+/g, ' ').trim().slice(0, 60);
    })()`);
    if (found === null || (stops.length > 0 && found === stops[0])) return stops;
    stops.push(found);
  }
  throw new Error(`the focus does not leave ${page.url()}: ${stops.slice(-5).join('; ')}`);
}
