/** Sign-in, stored tokens, refresh, contexts and their failures, against the real control plane. */
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { BERTH_VERSION } from '@berth/wire/version';
import { ADMIN, PASSWORD, person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
const other = serveOnce();

const tokensIn = (home: string): string => join(home, '.local/state/berth/tokens');
const tokenFile = (home: string): string => {
  const [name = ''] = readdirSync(tokensIn(home)).filter((file) => file.endsWith('.json'));
  return join(tokensIn(home), name);
};
type Stored = { token: string; refresh_token: string; expires_at: number };
const stored = (home: string): Stored =>
  JSON.parse(readFileSync(tokenFile(home), 'utf8')) as Stored;
const change = (home: string, set: Partial<Stored>): void =>
  writeFileSync(tokenFile(home), JSON.stringify({ ...stored(home), ...set }));

describe('login by password', () => {
  test('signs in with the password from standard input and stores the tokens for the owner alone', async () => {
    const { url } = served;
    const who = person();
    const { code, out, err } = await who.berth(['login', url, '--email', ADMIN], {
      stdin: `${PASSWORD}\n`,
    });
    expect({ code, out, err }).toEqual({
      code: 0,
      out: `signed in to ${url} as ${ADMIN} (admin)\n`,
      err: '',
    });
    expect(statSync(tokenFile(who.home)).mode & 0o777).toBe(0o600);
    expect(statSync(tokensIn(who.home)).mode & 0o777).toBe(0o700);
    expect(await who.berth(['whoami'])).toMatchObject({
      code: 0,
      out: expect.stringContaining(ADMIN),
    });
  });

  test('a wrong password exits with 4 and stores nothing', async () => {
    const { url } = served;
    const who = person();
    const result = await who.berth(['login', url, '--email', ADMIN], { stdin: 'wrong password' });
    expect(result).toMatchObject({
      code: 4,
      out: '',
      err: expect.stringContaining('The e-mail address or the password is wrong'),
    });
    expect(
      existsSync(tokensIn(who.home))
        ? readdirSync(tokensIn(who.home)).filter((f) => f.endsWith('.json'))
        : [],
    ).toEqual([]);
  });

  test('an address without a gateway is named, with the way that works', async () => {
    const { url } = served;
    const result = await person().berth(['login', url]);
    expect(result).toMatchObject({
      code: 1,
      err: expect.stringContaining(`berth login ${url} --email ADDRESS`),
    });
  });

  test('a password or a path in the address, and an address that is none, are wrong usage', async () => {
    for (const address of [
      'https://ada:secret@berth.example.com',
      'ftp://berth.example.com',
      'http://',
    ])
      expect(
        (await person().berth(['login', address, '--email', ADMIN], { stdin: PASSWORD })).code,
        address,
      ).toBe(2);
  });
});

describe('login in a browser', () => {
  test('a gateway that does not know the new token yet is asked again; one that never does is an error', async () => {
    let refusals = 2;
    const gateway = createServer((request, reply) => {
      const url = `http://${request.headers.host ?? ''}`;
      const user = {
        id: 'u-1',
        email: 'ada@example.org',
        role: 'viewer',
        disabled: false,
        last_login_at: null,
      };
      const answers: Record<string, object> = {
        '/.well-known/oauth-authorization-server': {
          device_authorization_endpoint: `${url}/code`,
          token_endpoint: `${url}/token`,
        },
        '/code': {
          device_code: 'd',
          user_code: 'ABCD-EFGH',
          verification_uri: `${url}/device`,
          interval: 0.01,
        },
        '/token': { access_token: 'berth_new', token_type: 'Bearer', expires_in: 60 },
        '/api/auth/exchange': {
          token: 'jwt',
          token_type: 'Bearer',
          expires_in: 3_600,
          refresh_token: 'r',
          user,
        },
        '/api/version': {
          version: BERTH_VERSION,
          commit: null,
          node: '24',
          schema: '1',
          oldest_agent: BERTH_VERSION,
        },
      };
      const refused = request.url === '/api/auth/exchange' && refusals-- > 0;
      reply.writeHead(refused ? 401 : 200, { 'content-type': 'application/json' });
      reply.end(
        JSON.stringify(
          refused
            ? { code: 'unauthenticated', status: 401, title: 'no', detail: 'unknown', type: 'x' }
            : answers[request.url ?? ''],
        ),
      );
    });
    await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void gateway.close());
    const address = `http://127.0.0.1:${(gateway.address() as { port: number }).port}`;
    expect(await person().berth(['login', address, '--no-browser'])).toMatchObject({
      code: 0,
      out: expect.stringContaining('ada@example.org'),
    });
    refusals = Number.POSITIVE_INFINITY;
    expect(await person().berth(['login', address, '--no-browser'])).toMatchObject({
      code: 4,
      out: '',
    });
  });
});

describe('a control plane that cannot be reached', () => {
  test('exits with 3 and names the address', async () => {
    const result = await person().berth(['login', 'http://127.0.0.1:9', '--email', ADMIN], {
      stdin: PASSWORD,
    });
    expect(result).toMatchObject({ code: 3, out: '', err: expect.stringContaining('127.0.0.1:9') });
    const device = await person().berth(['login', 'http://127.0.0.1:9']);
    expect(device).toMatchObject({ code: 3, err: expect.stringContaining('127.0.0.1:9') });
  });

  test('--json: one problem document on stderr, and stdout stays empty', async () => {
    const { code, out, err } = await person().berth(['whoami', '--json'], {
      env: { BERTH_URL: 'http://127.0.0.1:9', BERTH_TOKEN: 'berthpat_x' },
    });
    expect({ code, out }).toEqual({ code: 3, out: '' });
    expect(JSON.parse(err)).toMatchObject({ code: 'unreachable', exit_code: 3 });
  });
});

describe('tokens of CI', () => {
  test('BERTH_TOKEN and BERTH_URL work without any file; a revoked token exits with 4', async () => {
    const { url } = served;
    const admin = await signedIn(url);
    const made = JSON.parse(
      (await admin.berth(['token', 'create', 'ci', '--role', 'viewer', '--json'])).out,
    ) as {
      id: string;
      token: string;
    };
    const env = { BERTH_URL: url, BERTH_TOKEN: made.token };
    const ci = person();
    expect(await ci.berth(['whoami'], { env })).toMatchObject({
      code: 0,
      out: expect.stringContaining(ADMIN),
    });
    expect(readdirSync(ci.home)).toEqual([]);
    expect(
      (
        await ci.berth(['project', 'create', 'x', '--git-url', 'https://git.example.com/x.git'], {
          env,
        })
      ).code,
    ).toBe(4);
    expect((await admin.berth(['token', 'delete', made.id])).code).toBe(0);
    expect(await ci.berth(['whoami'], { env })).toMatchObject({
      code: 4,
      err: expect.stringContaining('expired or revoked'),
    });
  });

  test('BERTH_TOKEN_FILE is read; a token without BERTH_URL is wrong usage', async () => {
    const { url } = served;
    const admin = await signedIn(url);
    const who = person();
    writeFileSync(join(who.home, 'token'), (await admin.berth(['token', 'create', 'ci'])).out);
    expect(
      (
        await who.berth(['whoami'], {
          env: { BERTH_URL: url, BERTH_TOKEN_FILE: join(who.home, 'token') },
        })
      ).code,
    ).toBe(0);
    writeFileSync(join(who.home, '.berth.json'), JSON.stringify({ url, project: 'shop' }));
    const alone = await who.berth(['status'], { env: { BERTH_TOKEN: 'berthpat_secret' } });
    expect(alone).toMatchObject({ code: 2, err: expect.stringContaining('BERTH_URL') });
    expect(alone.err).not.toContain('berthpat_secret');
  });
});

describe('refresh', () => {
  test('an expired token is renewed, and the new refresh token is stored', async () => {
    const { url } = served;
    const who = await signedIn(url);
    const before = stored(who.home);
    change(who.home, { expires_at: 0 });
    expect((await who.berth(['whoami'])).code).toBe(0);
    expect(stored(who.home).refresh_token).not.toBe(before.refresh_token);
  });

  test('twenty parallel commands with an expired token refresh once and all succeed', async () => {
    const { url } = served;
    const who = await signedIn(url);
    change(who.home, { expires_at: 0 });
    const results = await Promise.all(Array.from({ length: 20 }, () => who.berth(['whoami'])));
    expect(results.map((r) => r.code)).toEqual(Array.from({ length: 20 }, () => 0));
    expect((await who.berth(['whoami'])).code).toBe(0);
  });

  test('a token that the API refuses early is renewed once', async () => {
    const { url } = served;
    const who = await signedIn(url);
    change(who.home, { token: 'not-a-token' });
    expect((await who.berth(['whoami'])).code).toBe(0);
    expect(stored(who.home).token).not.toBe('not-a-token');
  });

  test('a refresh token that was used before ends a session by password: exit 4, and the command that it names signs in again', async () => {
    const { url } = served;
    const who = await signedIn(url);
    const { refresh_token } = stored(who.home);
    change(who.home, { expires_at: 0 });
    expect((await who.berth(['whoami'])).code).toBe(0);
    change(who.home, { expires_at: 0, refresh_token });
    const refused = await who.berth(['whoami']);
    expect(refused).toMatchObject({
      code: 4,
      out: '',
      err: expect.stringContaining(`next: berth login ${url} --email ${ADMIN}`),
    });
    const next = /next: berth (login .*)/.exec(refused.err)?.[1]?.split(' ') ?? [];
    expect((await who.berth(next, { stdin: PASSWORD })).code).toBe(0);
    expect((await who.berth(['whoami'])).code).toBe(0);
  });

  test('a token file that others can read is refused', async () => {
    const { url } = served;
    const who = await signedIn(url);
    chmodSync(tokenFile(who.home), 0o644);
    expect(await who.berth(['whoami'])).toMatchObject({
      code: 4,
      err: expect.stringContaining('other users can read'),
    });
  });
});

describe('contexts', () => {
  test('the last sign-in is the current context; --context and `context use` choose another one', async () => {
    const [one, two] = [served, other];
    const who = await signedIn(one.url);
    expect((await who.berth(['login', two.url, '--email', ADMIN], { stdin: PASSWORD })).code).toBe(
      0,
    );
    const names = [one.url, two.url].map((url) => new URL(url).host);
    expect((await who.berth(['whoami', '--json'])).out).toContain(two.url);
    expect((await who.berth(['whoami', '--json', '--context', names[0] ?? ''])).out).toContain(
      one.url,
    );
    expect((await who.berth(['context', 'use', names[0] ?? ''])).code).toBe(0);
    expect((await who.berth(['whoami', '--json'])).out).toContain(one.url);
    expect((await who.berth(['context', 'use', 'nowhere'])).code).toBe(2);
  });

  test('--context never gets the token of BERTH_TOKEN, nor the token of another context', async () => {
    const { createServer } = await import('node:http');
    const seen: (string | undefined)[] = [];
    const stranger = createServer((request, reply) => {
      seen.push(request.headers.authorization);
      reply
        .writeHead(401, { 'content-type': 'application/problem+json' })
        .end('{"code":"unauthenticated","title":"No","status":401,"detail":""}');
    });
    await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
    const at = `http://127.0.0.1:${(stranger.address() as { port: number }).port}`;
    const who = await signedIn(served.url);
    const path = join(who.home, '.config/berth/contexts.json');
    const known = JSON.parse(readFileSync(path, 'utf8')) as { contexts: object };
    writeFileSync(
      path,
      JSON.stringify({
        ...known,
        contexts: { ...known.contexts, stranger: { url: at, email: ADMIN } },
      }),
    );
    const env = { BERTH_URL: served.url, BERTH_TOKEN: 'berthpat_secret' };
    for (const given of [{ env }, {}]) {
      const result = await who.berth(['whoami', '--context', 'stranger'], given);
      expect(result).toMatchObject({
        code: 4,
        err: expect.stringContaining(`you are not signed in to ${at}`),
      });
    }
    stranger.close();
    expect(seen).toEqual([]);
  });

  test('logout ends the session at the server and forgets it', async () => {
    const { url } = served;
    const who = await signedIn(url);
    const { token } = stored(who.home);
    expect(await who.berth(['logout'])).toMatchObject({ code: 0, out: `signed out of ${url}\n` });
    expect((await who.berth(['whoami'])).code).toBe(4);
    const answer = await fetch(`${url}/api/auth/me`, {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(answer.status).toBe(401);
  });

  test('.berth.json never sends a token to an address to which nobody signed in', async () => {
    const { url } = served;
    const who = await signedIn(url);
    const seen: string[] = [];
    const { createServer } = await import('node:http');
    const stranger = createServer((request, reply) => {
      seen.push(request.url ?? '');
      reply.end('{}');
    });
    await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
    const { port } = stranger.address() as { port: number };
    writeFileSync(
      join(who.home, '.berth.json'),
      JSON.stringify({ url: `http://127.0.0.1:${port}`, project: 'shop' }),
    );
    const result = await who.berth(['status']);
    stranger.close();
    expect(result).toMatchObject({
      code: 4,
      err: expect.stringContaining('if you trust this address'),
    });
    expect(seen).toEqual([]);
  });
});

test('a redirect to another host is named and not followed, so no password travels', async () => {
  const { createServer } = await import('node:http');
  const seen: string[] = [];
  const thief = createServer((request, reply) => {
    seen.push(request.method ?? '');
    reply.end('{}');
  });
  await new Promise<void>((resolve) => thief.listen(0, '127.0.0.1', resolve));
  const to = `http://127.0.0.1:${(thief.address() as { port: number }).port}`;
  const front = createServer((_, reply) =>
    reply.writeHead(307, { location: `${to}/api/auth/login` }).end(),
  );
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  const from = `http://127.0.0.1:${(front.address() as { port: number }).port}`;
  const result = await person().berth(['login', from, '--email', ADMIN], { stdin: PASSWORD });
  thief.close();
  front.close();
  expect(result).toMatchObject({ code: 3, err: expect.stringContaining(`redirects to ${to}`) });
  expect(seen).toEqual([]);
});
