/**
 * Control planes of another version, proxies that answer with pages, servers that lie, and
 * connections that fail.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient, UnreachableError } from '@berth/wire/client';
import { ROUTES } from '@berth/wire/routes';
import { BERTH_VERSION } from '@berth/wire/version';
import { makeCertificate } from '@berth/testbed/certificate';
import { describe, expect, onTestFinished, test } from 'vitest';
import { failureOf } from '../src/problem.ts';
import { ADMIN, PASSWORD, person, removeHomes, type Result } from './support.ts';

removeHomes();

async function listening(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}
const serving = async (listener: RequestListener): Promise<string> =>
  `http://127.0.0.1:${await listening(createServer(listener))}`;
const ask = (BERTH_URL: string, ...argv: string[]): Promise<Result> =>
  person().berth(argv, { env: { BERTH_URL, BERTH_TOKEN: 'berthpat_x' } });

describe('a control plane of another version', () => {
  const [major = 0, minor = 0] = BERTH_VERSION.split('.').map(Number);
  const problem = (status: number, code: string, detail: string) => ({
    type: 'about:blank',
    title: 'No',
    status,
    detail,
    code,
  });
  /** Answers each path but `/api/version` with `body`. */
  const another = (version: string, status: number, body: object): Promise<string> =>
    serving((request, reply) => {
      const isVersion = request.url === ROUTES.version.path;
      reply.writeHead(isVersion ? 200 : status, { 'content-type': 'application/json' });
      reply.end(
        JSON.stringify(
          isVersion ? { version, commit: null, node: 'v24', schema: '1', oldest_agent: '0' } : body,
        ),
      );
    });

  test.each([
    [
      'older, without the path',
      `${major}.${minor - 1}.0`,
      404,
      { ...problem(404, 'not_found', 'it is not here'), unknown_path: true },
    ],
    ['newer, with an answer of another form', `${major + 1}.0.0`, 200, { projects: [] }],
    [
      'newer, without the method',
      `${major}.${minor + 1}.0`,
      405,
      problem(405, 'method_not_allowed', 'no'),
    ],
  ])('%s: names both versions and exits with 3', async (_, version, status, body) => {
    const url = await another(version, status, body);
    const { code, out, err } = await ask(url, 'project', 'list');
    expect({ code, out }, err).toEqual({ code: 3, out: '' });
    expect(err).toContain(
      `has version ${version}, and this command line has version ${BERTH_VERSION}`,
    );
    expect(err).toContain('next: install the command line of the same version');
    expect(JSON.parse((await ask(url, 'project', 'list', '--json')).err)).toMatchObject({
      code: 'version_mismatch',
      exit_code: 3,
    });
  });

  test('a refused value keeps its own text and exit code, and the versions are a note', async () => {
    const url = await another(
      `${major}.${minor + 1}.0`,
      422,
      problem(422, 'validation', 'the name is too long'),
    );
    const { code, err } = await ask(url, 'project', 'list');
    expect(code).toBe(1);
    expect(err).toContain('the name is too long');
    expect(err).toContain('note: the control plane');
  });

  test('an older one that does not mark unknown paths: the versions are a note', async () => {
    const body = problem(404, 'not_found', 'the path GET /api/projects does not exist');
    const url = await another(`${major}.${minor - 1}.0`, 404, body);
    const { code, err } = await ask(url, 'project', 'list');
    expect(code).toBe(1);
    expect(err).toContain('note: the control plane');
  });

  test('the same version with an unknown path is an ordinary failure', async () => {
    const body = { ...problem(404, 'not_found', 'it is not here'), unknown_path: true };
    const url = await another(BERTH_VERSION, 404, body);
    expect(await ask(url, 'project', 'list')).toMatchObject({
      code: 1,
      err: expect.not.stringContaining('version'),
    });
  });
});

describe('something that is no control plane', () => {
  const PAGE = '<!doctype html><title>Please sign in to the wireless network</title>';

  test.each([200, 401, 403, 404, 413, 500, 502, 503])(
    'a page with status %i: exits with 3, and shows neither the page nor a way to sign in',
    async (status) => {
      const url = await serving((_, reply) =>
        reply.writeHead(status, { 'content-type': 'text/html' }).end(PAGE),
      );
      const list = await ask(url, 'project', 'list');
      expect(list, list.err).toMatchObject({ code: 3, out: '' });
      expect(list.err).not.toMatch(/doctype|berth login/);
      expect(list.err).toMatch(/next: (check the address|on the machine of the control plane)/);
      for (const argv of [
        ['login', url],
        ['login', url, '--email', ADMIN],
      ]) {
        const login = await person().berth(argv, { stdin: PASSWORD });
        // 404 is also what a control plane without a gateway answers, but not with a page.
        expect(login, argv.join(' ')).toMatchObject({
          code: 3,
          err: expect.not.stringContaining('doctype'),
        });
      }
    },
  );

  test('login at an address where something else answers says so, with and without --email', async () => {
    const url = await serving((_, reply) =>
      reply
        .writeHead(404, { 'content-type': 'text/plain' })
        .end('404 Not Found:\nno application\n'),
    );
    for (const argv of [
      ['login', url],
      ['login', url, '--email', ADMIN],
    ]) {
      const { code, err } = await person().berth(argv, { stdin: PASSWORD });
      expect({ code, err }).toEqual({
        code: 3,
        err:
          'berth: the address answered 404: 404 Not Found: no application\n  next: check the ' +
          'address (berth context list), and the proxy in between\n',
      });
    }
  });

  test('an answer that ends in the middle is not read as a whole one', async () => {
    const url = await serving((_, reply) => {
      reply.writeHead(200, { 'content-length': '1000' }).write('{"items": []');
      setImmediate(() => reply.destroy());
    });
    expect((await ask(url, 'project', 'list')).code).toBe(3);
  });
});

describe('connections that fail', () => {
  test('nobody listens, also at a name with two addresses: the reason is named', async () => {
    for (const host of ['127.0.0.1', 'localhost', 'berth.localhost']) {
      const { code, err } = await ask(`http://${host}:9`, 'whoami');
      expect({ code, refused: err.includes('ECONNREFUSED') }, err).toEqual({
        code: 3,
        refused: true,
      });
      expect(err).toContain('next: on the machine of the control plane');
    }
  });

  test('a certificate that nobody signed, and plain http at an https address, say what to do', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'berth-tls-'));
    onTestFinished(() => rmSync(dir, { recursive: true }));
    const { keyFile, certFile } = await makeCertificate(dir, 'berth', ['IP:127.0.0.1']);
    const [key, cert] = [readFileSync(keyFile), readFileSync(certFile)];
    const tls = await listening(createTlsServer({ key, cert }, (_, reply) => reply.end('{}')));
    expect(await ask(`https://127.0.0.1:${tls}`, 'whoami')).toMatchObject({
      code: 3,
      err: expect.stringContaining('NODE_EXTRA_CA_CERTS'),
    });
    const plain = await serving((_, reply) => reply.end('{}'));
    expect(await ask(plain.replace('http:', 'https:'), 'whoami')).toMatchObject({
      code: 3,
      err: expect.stringContaining('https or http'),
    });
  });

  test('a server that does not answer in time is named', async () => {
    const url = await serving(() => undefined);
    const error: unknown = await createClient({ baseUrl: url })
      .call('me', { timeoutMs: 50 })
      .catch((thrown: unknown) => thrown);
    expect(failureOf(error).lines).toEqual([
      `Berth could not be reached: GET ${url}/api/auth/me: no answer within the time limit of ` +
        'the request',
      'next: on the machine of the control plane, look at its service and its log ' +
        '(docs/operating.md)',
    ]);
  });

  test.each([
    [Object.assign(new Error('x'), { code: 'ENOTFOUND' }), 'check the name'],
    [Object.assign(new Error('x'), { code: 'EHOSTUNREACH' }), 'check the network'],
    [Object.assign(new Error('x'), { code: 'CERT_HAS_EXPIRED' }), 'renew the certificate'],
    [new DOMException('x', 'TimeoutError'), 'its service and its log'],
    [new Error('x'), 'check the address'],
  ])('%s: the next step fits the reason', (cause, expected) => {
    const { exit, lines } = failureOf(new UnreachableError('GET x: x', { cause }));
    expect(exit).toBe(3);
    expect(lines.join('\n')).toContain(expected);
  });
});

describe('a server that lies', () => {
  /** Sets the title of the terminal, moves the cursor, and turns the text around. */
  const EVIL = 'x\u001b]0;owned\u0007\u001b[2J\u009b2J\u202ey';
  test('no text of an answer reaches the terminal with control characters, and --json escapes them', async () => {
    const project = {
      id: 'p',
      name: EVIL,
      url: EVIL,
      git_url: EVIL,
      branch: EVIL,
      deleting: false,
      running_deployment_id: null,
    };
    const deployment = {
      id: EVIL,
      generation: 1,
      status: EVIL,
      url: EVIL,
      created_at: EVIL,
      events: [],
      phases: [],
      datasets: [],
      note: EVIL,
    };
    const url = await serving((request, reply) => {
      const body = {
        ...project,
        ...deployment,
        email: EVIL,
        role: EVIL,
        token: EVIL,
        command: EVIL,
        expires_at: EVIL,
        public_key: EVIL,
        fingerprint: EVIL,
      };
      const items = [
        {
          ...body,
          hostname: EVIL,
          status: 'offline',
          last_seen_at: EVIL,
          message: EVIL,
          seq: 1,
          at: EVIL,
          kind: EVIL,
        },
      ];
      const isError = request.method === 'DELETE';
      reply.writeHead(isError ? 409 : 200, { 'content-type': 'application/json' });
      reply.end(
        JSON.stringify(
          isError
            ? {
                code: EVIL,
                title: EVIL,
                detail: EVIL,
                status: 409,
                errors: [{ field: EVIL, message: EVIL }],
              }
            : { ...body, items, next_cursor: null, next: 1 },
        ),
      );
    });
    const shown: string[] = [];
    for (const argv of [
      ['whoami'],
      ['project', 'list'],
      ['project', 'show', 'x'],
      ['project', 'create', 'x', '--git-url', 'https://git.example.com/x.git'],
      ['project', 'delete', 'x', '--yes'],
      ['status', 'x'],
      ['deploy', 'x', '--detach'],
      ['token', 'create', 'x'],
      ['node', 'join-token', '--role', 'builder'],
      ['deploy-key', 'show', 'x'],
      ['events'],
      ['env', 'set', 'A', '--project', 'x'],
    ])
      for (const more of [[], ['--json']]) {
        const { out, err } = await person().berth([...argv, ...more], {
          stdin: 'v',
          env: { BERTH_URL: url, BERTH_TOKEN: 'berthpat_x' },
          terminal: { out: true, err: true },
        });
        shown.push(out + err);
        if (more.length > 0) expect(out === '' ? err : out, argv.join(' ')).toContain('\\u009b');
        // Colours are the command line's own.
        expect((out + err).split(/\p{Cc}\[\d+m/u).join(''), argv.join(' ')).not.toMatch(
          /(?!\n)\p{Cc}|\u202e/u,
        );
      }
    expect(shown.join('')).toContain('xy');
  });
});
