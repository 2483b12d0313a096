/** Commands for the account and the client: login, logout, whoami, context, version. */
import type { LoginAnswer } from '@berth/wire/access';
import { ApiError, UnreachableError } from '@berth/wire/client';
import { BERTH_VERSION } from '@berth/wire/version';
import type { Cli } from '../cli.ts';
import { readValue } from '../ask.ts';
import { refused, usage } from '../problem.ts';
import { record, table } from '../output/text.ts';
import { openBrowser } from '../session/browser.ts';
import { nameOf, originOf, readContexts, writeContexts } from '../session/contexts.ts';
import { askForCode, findEndpoints, waitForToken } from '../session/device-flow.ts';
import { anonymous, exchange, openSession } from '../session/session.ts';
import { tokensOf, tokenStore } from '../session/tokens.ts';
import { mismatch } from '../session/version.ts';
import { argument, type Command, textOf } from './command.ts';

export const ACCOUNT_COMMANDS: readonly Command[] = [
  {
    name: 'login',
    summary: 'Sign in to Berth in a browser, or with e-mail and password',
    detail:
      'Without --email, the command prints a code and an address, and opens a browser if there ' +
      'is one. The token is kept for 90 days.',
    args: [
      {
        name: 'url',
        doc:
          'address of Berth, such as https://berth.example.com; default: BERTH_URL, then the ' +
          'current context',
      },
    ],
    options: [
      {
        flags: '--email <address>',
        doc: 'sign in with a password, from a prompt or from standard input',
      },
      { flags: '--no-browser', doc: 'do not open a browser' },
    ],
    routes: ['login', 'exchange', 'version'],
    run: (cli, args, options) =>
      login(cli, args[0], textOf(options, 'email') ?? null, options['browser'] !== false),
  },
  {
    name: 'logout',
    summary: 'Sign out: end the session, revoke its device token and forget both',
    routes: ['logout', 'deleteDeviceToken'],
    run: logout,
  },
  {
    name: 'whoami',
    summary: 'Show who is signed in, where, and with which role',
    routes: ['me'],
    async run(cli) {
      const user = await cli.client().call('me', {});
      const { url } = cli.session();
      cli.print({ ...user, url }, () =>
        record([
          ['user', user.email],
          ['role', user.role],
          ['at', url],
        ]),
      );
    },
  },
  {
    name: 'version',
    summary: 'Show the version of the command line and of the control plane',
    routes: ['version'],
    async run(cli) {
      const server = await cli.client().call('version', {});
      const said = mismatch(cli.session().url, server.version);
      cli.print({ version: BERTH_VERSION, control_plane: server }, () =>
        record([
          ['command line', BERTH_VERSION],
          [
            'control plane',
            `${server.version}${server.commit === null ? '' : ` (${server.commit.slice(0, 8)})`}`,
          ],
          ['node', server.node],
          ['database schema', server.schema],
        ]),
      );
      if (said !== null) cli.say(`note: ${said}`);
    },
  },
  {
    name: 'context list',
    summary: 'List the addresses to which you signed in',
    routes: [],
    run(cli) {
      const { current, contexts } = readContexts(cli.io.config);
      const items = Object.entries(contexts).map(([name, context]) => ({
        name,
        ...context,
        current: name === current,
      }));
      cli.print({ items }, () =>
        items.length === 0
          ? 'no contexts; create one: berth login URL'
          : table(items, [
              { head: 'CURRENT', of: (c) => (c.current ? '*' : '') },
              { head: 'NAME', of: (c) => c.name },
              { head: 'ADDRESS', of: (c) => c.url },
              { head: 'USER', of: (c) => c.email },
            ]),
      );
    },
  },
  {
    name: 'context use',
    summary: 'Make a context the current one',
    args: [{ name: 'name', doc: 'name of the context', required: true }],
    routes: [],
    run(cli, args) {
      const name = argument(args, 0);
      const all = readContexts(cli.io.config);
      if (all.contexts[name] === undefined)
        throw usage(`there is no context “${name}”`, 'berth context list');
      writeContexts(cli.io.config, { ...all, current: name });
      cli.print({ current: name }, () => `the current context is ${name}`);
    },
  },
  {
    name: 'context remove',
    summary: 'Forget a context and its tokens without a request to the server',
    args: [{ name: 'name', doc: 'name of the context', required: true }],
    routes: [],
    run(cli, args) {
      const name = argument(args, 0);
      const context = readContexts(cli.io.config).contexts[name];
      if (context === undefined) throw usage(`there is no context “${name}”`, 'berth context list');
      tokenStore(cli.io.config, context.url).remove();
      forget(cli, context.url);
      cli.print({ removed: name }, () => `forgot ${name}`);
    },
  },
];

async function login(
  cli: Cli,
  named: string | undefined,
  email: string | null,
  browser: boolean,
): Promise<void> {
  const url = addressToSignInTo(cli, named);
  if (
    url.startsWith('http:') &&
    !/^(localhost|.*\.localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(new URL(url).hostname)
  )
    cli.say(
      `${cli.paintErr('yellow', 'note:')} ${url} is not encrypted; others in the network can ` +
        'read your token',
    );
  const { answer, deviceToken } =
    email === null
      ? await byDevice(cli, url, browser)
      : { answer: await byPassword(cli, url, email), deviceToken: null };

  const store = tokenStore(cli.io.config, url);
  await store.locked(async () => store.write(tokensOf(url, answer, cli.io.now(), deviceToken)));
  const all = readContexts(cli.io.config);
  const name = nameOf(url);
  writeContexts(cli.io.config, {
    current: name,
    contexts: { ...all.contexts, [name]: { url, email: answer.user.email } },
  });

  const { version } = await openSession(cli.io, url, undefined).client.call('version', {});
  const said = mismatch(url, version);
  if (said !== null) cli.say(`${cli.paintErr('yellow', 'note:')} ${said}`);
  cli.print(
    { url, context: name, user: answer.user },
    () => `signed in to ${url} as ${answer.user.email} (${answer.user.role})`,
  );
}

function addressToSignInTo(cli: Cli, named: string | undefined): string {
  const { current, contexts } = readContexts(cli.io.config);
  const chosen =
    named ??
    cli.io.config.BERTH_URL ??
    (cli.context === undefined ? contexts[current ?? '']?.url : contexts[cli.context]?.url);
  if (chosen === undefined)
    throw usage('no address was given', 'berth login https://your-berth.example.com');
  const text = /^[a-z][a-z0-9+.-]*:\/\//i.test(chosen) ? chosen : `https://${chosen}`;
  if (!URL.canParse(text) || !/^https?:$/.test(new URL(text).protocol))
    throw usage(`“${chosen}” is not an http or https address`);
  const { username, password } = new URL(text);
  if (username !== '' || password !== '')
    throw usage(
      'the address must not contain a user or a password',
      'berth login URL --email ADDRESS',
    );
  return originOf(text);
}

async function byDevice(
  cli: Cli,
  url: string,
  browser: boolean,
): Promise<{ answer: LoginAnswer; deviceToken: string }> {
  const endpoints = await findEndpoints(url).catch((error: unknown) => {
    if (error instanceof Error && !(error instanceof ApiError) && error.name !== 'CliError')
      throw new UnreachableError(
        `${url}: ${error.message || (error as NodeJS.ErrnoException).code}`,
        { cause: error },
      );
    throw error;
  });
  if (endpoints === null)
    throw refused(
      'no_gateway',
      `${url} offers no sign-in in a browser: no gateway answers there`,
      `berth login ${url} --email ADDRESS`,
    );
  const asked = await askForCode(endpoints);
  cli.tell(`Open ${asked.address} and enter the code ${cli.paintErr('bold', asked.userCode)}`);
  if (browser && (await openBrowser(cli.io, asked.completeAddress)))
    cli.tell('A browser was opened with the code filled in.');
  cli.tell('Waiting for your confirmation…');
  const deviceToken = await waitForToken(cli.io, endpoints, asked);
  return { answer: await firstExchange(cli, url, deviceToken), deviceToken };
}

/** A gateway can take up to 5 s to learn another gateway's token: retry early refusals. */
const TOKEN_KNOWN_MS = 5_000;
const LOOK_AGAIN_MS = 250;
async function firstExchange({ io }: Cli, url: string, deviceToken: string): Promise<LoginAnswer> {
  const until = io.monotonic() + TOKEN_KNOWN_MS;
  for (;;) {
    try {
      return await exchange(url, deviceToken);
    } catch (error) {
      if (
        !(error instanceof ApiError && error.status === 401) ||
        io.monotonic() >= until ||
        io.interrupted.aborted
      )
        throw error;
    }
    await io.sleep(LOOK_AGAIN_MS, io.interrupted).catch(() => undefined);
  }
}

async function byPassword(cli: Cli, url: string, email: string): Promise<LoginAnswer> {
  const password = await readValue(cli.io, `Password of ${email}`, true);
  if (password === '')
    throw usage(
      'the password is empty',
      'give it on standard input, or run the command in a terminal',
    );
  try {
    return await anonymous(url).call('login', { body: { email, password } });
  } catch (error) {
    if (error instanceof ApiError && error.code === 'wrong_credentials')
      throw new ApiError(401, error.code, error.message, {
        ...(error.problem ?? noProblem),
        detail: '',
      });
    throw error;
  }
}
const noProblem = {
  type: 'about:blank',
  title: 'The e-mail address or the password is wrong',
  status: 401,
  detail: '',
  code: 'wrong_credentials',
};

async function logout(cli: Cli): Promise<void> {
  const { url } = cli.session();
  const store = tokenStore(cli.io.config, url);
  if (cli.io.config.BERTH_TOKEN !== undefined && cli.context === undefined)
    throw usage(
      'the token is from BERTH_TOKEN, so there is nothing to forget',
      'berth token delete ID',
    );
  const tokens = store.read();
  if (tokens !== null) {
    try {
      const device = deviceIdOf(tokens.token);
      // Revoking the device token also ends its sessions.
      if (device !== null) await cli.client().call('deleteDeviceToken', { params: { id: device } });
      else await cli.client().call('logout', {});
    } catch (error) {
      // The session has already ended.
      if (
        !(
          error instanceof Error &&
          ['signed_out', 'not_found', 'unauthenticated'].includes(
            (error as { code?: string }).code ?? '',
          )
        )
      )
        throw error;
    }
  }
  store.remove();
  forget(cli, url);
  cli.print({ url, signed_out: true }, () => `signed out of ${url}`);
}

function forget(cli: Cli, url: string): void {
  const all = readContexts(cli.io.config);
  const contexts = Object.fromEntries(
    Object.entries(all.contexts).filter(([, context]) => originOf(context.url) !== originOf(url)),
  );
  writeContexts(cli.io.config, {
    contexts,
    current: all.current !== null && contexts[all.current] !== undefined ? all.current : null,
  });
}

/**
 * Returns the id of the device token that opened the session: the claim `origin` of the API token.
 */
function deviceIdOf(token: string): string | null {
  try {
    const claims = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()) as {
      origin?: string;
    };
    return /^d\.([\w-]+)$/.exec(claims.origin ?? '')?.[1] ?? null;
  } catch {
    // The token is not a JWT, so it has no origin.
    return null;
  }
}
