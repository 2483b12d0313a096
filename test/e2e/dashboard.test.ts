/** The dashboard in Chromium, with the real control plane, agents, engine and Traefik. Pictures: .berth/pictures/dashboard. */
import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { type Browser, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Project } from '@berth/wire/project';
import { findProgram, repositoryRoot } from '@berth/testbed/config';
import { waitFor } from '@berth/testbed/wait';
import { buildDashboard } from '../../scripts/lib/dashboard.ts';
import { pageApp, startWorld, whyNot, type World } from './world.ts';

const executablePath = findProgram('chromium');
const reason = executablePath === undefined ? 'no Chromium: Debian package chromium' : await whyNot('traefik');
const PICTURES = join(repositoryRoot, '.berth', 'pictures', 'dashboard');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update'];
const DEVELOPER = { email: 'developer@example.org', password: 'another long password' };
const VIEWER = { email: 'viewer@example.org', password: 'a long enough password' };

describe.skipIf(reason !== undefined)(`dashboard in Chromium${reason === undefined ? '' : ` (skipped: ${reason})`}`, () => {
  let world: World;
  let browser: Browser;
  let page: Page;
  let project: Project;
  const errors: string[] = [];
  const heading = (name: string | RegExp) => page.getByRole('heading', { level: 1, name });
  const signIn = async (of: Page, { email, password }: { email: string; password: string }): Promise<void> => {
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
      if (message.type() === 'error' && /Content Security Policy|React/.test(message.text())) errors.push(message.text());
    });
    return opened;
  };

  beforeAll(async () => {
    await mkdir(PICTURES, { recursive: true });
    const folder = join(repositoryRoot, '.berth', 'dashboard-of-tests');
    await buildDashboard(folder);
    world = await startWorld({ proxy: 'traefik', env: { DASHBOARD_DIR: folder } });
    await world.berth.api.call('createUser', { body: { ...VIEWER, role: 'viewer' } });
    await world.berth.api.call('createUser', { body: { ...DEVELOPER, role: 'developer' } });
    browser = await chromium.launch({ ...(executablePath === undefined ? {} : { executablePath }), args: FLAGS });
    page = await fresh();
  });
  afterAll(async () => {
    await browser?.close();
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
    const paint = await opened.evaluate<number>("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0");
    console.log(`first page: ${(bytes / 1024).toFixed(1)} KiB in ${transfers.length} requests, first paint after ${Math.round(paint)} ms`);
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
      await page.locator('datalist option').evaluateAll((all) => all.map((each) => (each as unknown as { value: string }).value)),
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
    await page.getByRole('status').filter({ hasText: 'found; shop' }).waitFor({ state: 'attached' });
    await page.keyboard.press('Enter');
    await heading('shop').waitFor();
    await waitFor('the heading has the focus', () => page.evaluate<boolean>("document.activeElement?.tagName === 'H1'"));
    for (let i = 0; i < 10; i++) {
      await page.keyboard.press('Tab');
      if ((await page.evaluate('document.activeElement?.textContent')) === 'Deploy') break;
    }
    await page.keyboard.press('Enter');
    await heading('shop #2').waitFor();
    await page.getByText('running').first().waitFor({ timeout: 90_000 });
  });

  it('shows a change of another client within seconds, on a page that nobody touches', async () => {
    await page.goto(`${world.berth.url}/projects/shop`);
    await page.getByText('version 2').first().waitFor();
    await world.berth.api.call('stopProject', { params: project });
    await page.getByText('Stopped. Its address answers 503').waitFor({ timeout: 5_000 });
    await world.berth.settled(await world.berth.api.call('startProject', { params: project }));
    await page.getByText('serves').waitFor();
  });

  it('says that the control plane is away, keeps what it knows and what is typed, and recovers by itself', async () => {
    await page.goto(`${world.berth.url}/projects/shop/settings`);
    await page.getByLabel('Branch').fill('release');
    await world.berth.controlPlane.crash();
    await page.locator('[data-banner="away"]').waitFor();
    await heading('shop').waitFor();
    await world.berth.controlPlane.start();
    await page.locator('[data-banner="away"]').waitFor({ state: 'detached' });
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
    const me = await page.evaluate(async () => (await fetch('/api/auth/logout', { method: 'POST' })).status);
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
    expect(await viewer.locator(`[id="${await deploy.getAttribute('aria-describedby')}"]`).textContent()).toContain('your role is viewer');
    await viewer.goto(`${world.berth.url}/people`);
    await viewer.getByText('Only admins see this page').waitFor();
    await viewer.close();
  });

  it('a line of a log has an address, and a search shows the lines around a match', async () => {
    const log = page.getByRole('log').first();
    await page.goto(
      `${world.berth.url}/deployments/${(await world.berth.api.call('listDeployments', { query: {} })).items.at(-1)?.id ?? ''}`,
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
    await waitFor('lines around the match', async () => (await log.locator('.log-line').count()) > alone);
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

  it('a token of one project sees no other', async () => {
    await page.goto(`${world.berth.url}/account`);
    const limits = page.getByRole('combobox', { name: 'Only these projects' });
    await page.getByRole('textbox', { name: 'Name' }).fill('ci of shop');
    await limits.fill('no-such-project');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByText('[0] no project has this id or name').waitFor();
    await limits.press('Backspace');
    await limits.fill('shop');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByText('Copy the token now').waitFor();
    await page.getByRole('row', { name: /ci of shop.*shop/ }).waitFor();
  });

  it('no page has a serious finding of axe, light and wide, dark and narrow', async () => {
    const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    const { items } = await world.berth.api.call('listDeployments', { query: {} });
    const [node] = (await world.berth.api.call('listNodes', { query: {} })).items;
    const pages = {
      overview: '/',
      projects: '/projects',
      'new-project': '/projects/new',
      project: '/projects/shop',
      'project-logs': '/projects/shop/logs',
      'project-metrics': '/projects/shop/metrics',
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
    for (const [scheme, width] of [
      ['light', 1400],
      ['dark', 360],
    ] as const) {
      const context = await browser.newContext({
        colorScheme: scheme,
        viewport: { width, height: 900 },
        storageState: await page.context().storageState(),
        // axe is no script of the page.
        bypassCSP: true,
      });
      const opened = await context.newPage();
      for (const [name, path] of Object.entries(pages)) {
        await opened.goto(world.berth.url + path);
        await opened.locator('h1').waitFor();
        await opened.waitForLoadState('domcontentloaded');
        await waitFor('the page has loaded', async () => (await opened.getByText(/^Loading /).count()) === 0);
        await opened.screenshot({ path: join(PICTURES, `${name}-${scheme}-${width}.png`), fullPage: true });
        await opened.evaluate(axe);
        const serious = await opened.evaluate(async () => {
          type Finding = { id: string; impact: string; nodes: { html: string }[] };
          const run = (globalThis as unknown as { axe: { run(): Promise<{ violations: Finding[] }> } }).axe;
          const { violations } = await run.run();
          return violations
            .filter(({ impact }) => impact === 'serious' || impact === 'critical')
            .map(({ id, nodes }) => `${id}: ${nodes[0]?.html.slice(0, 160) ?? ''}`);
        });
        findings.push(...serious.map((text) => `${name} ${scheme} ${width}: ${text}`));
        const tooWide = await opened.evaluate<boolean>('document.documentElement.scrollWidth > innerWidth + 1');
        if (tooWide) findings.push(`${name} ${scheme} ${width}: wider than the window`);
      }
      await context.close();
    }
    expect(findings).toEqual([]);
  });

  it('no script failed, and the policy blocked nothing', () => expect(errors).toEqual([]));
});
