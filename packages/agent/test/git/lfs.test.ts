/** Git LFS: the batch protocol with a small server, and everything that a server may not do. */
import { createHash } from 'node:crypto';
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  type Checkout,
  fetchPointers,
  findPointers,
  type LfsOptions,
  type LfsPointer,
  pointersText,
  readLfsUrl,
} from '../../src/git/lfs.ts';

const CONTENT = Buffer.from('the content of a model\n'.repeat(5_000));
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const pointerText = (bytes: Buffer): string =>
  `version https://git-lfs.github.com/spec/v1\noid sha256:${sha256(bytes)}\nsize ${bytes.length}\n`;

let dir: string;
let server: Server;
let url: string;
let seen: { method: string; path: string; authorization: string | undefined }[];
/** Answers a download; the batch is answered by `objects`. */
let content: (request: IncomingMessage, reply: ServerResponse) => void;
let batch: {
  status: number;
  object: (oid: string, size: number) => object;
  headers?: Record<string, string>;
  text?: string;
};

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'agent-lfs-'));
  await writeFile(join(dir, 'model.bin'), pointerText(CONTENT));
  await chmod(join(dir, 'model.bin'), 0o755);
  await writeFile(join(dir, 'plain.bin'), 'no pointer');
  seen = [];
  content = (_, reply) => void reply.end(CONTENT);
  batch = {
    status: 200,
    object: (oid) => ({
      actions: {
        download: { href: `${url.replace('/repo', '')}/content/${oid}`, header: { 'x-key': '1' } },
      },
    }),
  };
  server = createServer((request, reply) => {
    seen.push({
      method: request.method ?? '',
      path: request.url ?? '',
      authorization: request.headers.authorization,
    });
    if (request.url?.startsWith('/repo.git/info/lfs/objects/batch') !== true)
      return content(request, reply);
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => (body += part));
    request.on('end', () => {
      const { objects } = JSON.parse(body) as { objects: { oid: string; size: number }[] };
      reply.writeHead(batch.status, batch.headers ?? {});
      reply.end(
        batch.text ??
          JSON.stringify({
            objects: objects.map(({ oid, size }) => ({ oid, size, ...batch.object(oid, size) })),
          }),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/repo`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(dir, { recursive: true });
});

const checkouts = (address = url): Checkout[] => [{ dir, name: '', url: address }];
const found = (): Promise<LfsPointer[]> =>
  findPointers(async () => 'model.bin\0plain.bin\0missing.bin\0', checkouts());
const options = (over: Partial<LfsOptions> = {}): LfsOptions => ({
  ownUrl: url,
  allowedHosts: undefined,
  authorization: () => null,
  until: performance.now() + 20_000,
  signal: new AbortController().signal,
  logLine: () => undefined,
  ...over,
});
const fetched = async (over: Partial<LfsOptions> = {}): Promise<LfsPointer[]> =>
  fetchPointers(await found(), checkouts(), options(over));

it('pointers are replaced by their content, and the file keeps its mode', async () => {
  expect(await found()).toMatchObject([
    { name: 'model.bin', oid: sha256(CONTENT), size: CONTENT.length },
  ]);
  expect(await fetched()).toEqual([]);
  expect(await readFile(join(dir, 'model.bin'))).toEqual(CONTENT);
  expect((await stat(join(dir, 'model.bin'))).mode & 0o777).toBe(0o755);
  expect(await found()).toEqual([]);
});

it('the token goes to the host of the project, and not to a host that the server names', async () => {
  await fetched({
    authorization: (to) => (new URL(to).host === new URL(url).host ? 'Basic x' : null),
  });
  expect(seen.map(({ authorization }) => authorization)).toEqual(['Basic x', 'Basic x']);
  seen = [];
  await writeFile(join(dir, 'model.bin'), pointerText(CONTENT));
  const other = url.replace('127.0.0.1', 'localhost').replace('/repo', '');
  batch.object = (oid) => ({ actions: { download: { href: `${other}/content/${oid}` } } });
  await fetched({ authorization: () => 'Basic x', allowedHosts: ['localhost'] });
  expect(seen.map(({ authorization }) => authorization)).toEqual(['Basic x', undefined]);
});

it('the server that .lfsconfig names is asked, if projects may use its host, and gets no token of another host', async () => {
  const lfsUrl = url.replace('127.0.0.1', 'localhost').replace('/repo', '/repo.git/info/lfs/');
  const elsewhere = (over: Partial<LfsOptions>, address = lfsUrl, repository = `${url}-moved`) =>
    found().then((pointers) =>
      fetchPointers(pointers, [{ dir, name: '', url: repository, lfsUrl: address }], options(over)),
    );
  const authorization = (to: string) => (new URL(to).hostname === '127.0.0.1' ? 'Basic x' : null);
  await expect(elsewhere({ authorization })).rejects.toThrow(
    '.lfsconfig is at localhost, which is not allowed',
  );
  await expect(elsewhere({ allowedHosts: [] }, lfsUrl, 'https://127.0.0.1/repo')).rejects.toThrow(
    'an address without https',
  );
  expect(seen).toEqual([]);
  expect(await elsewhere({ authorization, allowedHosts: ['localhost'] })).toEqual([]);
  expect(seen[0]).toEqual({
    method: 'POST',
    path: '/repo.git/info/lfs/objects/batch',
    authorization: undefined,
  });
  expect(await readFile(join(dir, 'model.bin'))).toEqual(CONTENT);
  await writeFile(join(dir, 'model.bin'), pointerText(CONTENT));
  expect(await elsewhere({}, 'ssh://git@git.example.com/x')).toHaveLength(1);
});

it.each([
  [
    '100644 a 0\t.lfsconfig\0',
    'lfs.locksverify\ntrue\0lfs.url\nhttps://a/x\0lfs.url\nhttps://b/x\0',
    'https://b/x',
  ],
  ['100644 a 0\t.lfsconfig\0', 'remote.origin.lfsurl\nhttps://a/x\0', 'https://a/x'],
  ['100644 a 0\t.lfsconfig\0', 'lfs.fetchexclude\n*\0', null],
  ['120000 a 0\t.lfsconfig\0', 'lfs.url\nhttps://a/x\0', null],
  ['', 'lfs.url\nhttps://a/x\0', null],
])('reads the address of .lfsconfig: %j %j', async (listed, config, address) => {
  expect(
    await readLfsUrl(async ([command]) => (command === 'ls-files' ? listed : config), dir),
  ).toBe(address);
});

it('more files than are read are not left out without a word', async () => {
  const many = async (): Promise<string> => 'x\0'.repeat(100_001);
  await expect(findPointers(many, checkouts(), true)).rejects.toThrow('more than 100000 files');
});

it('a redirect is followed to an allowed host only, without the headers of the first one', async () => {
  const other = url.replace('127.0.0.1', 'localhost').replace('/repo', '');
  content = (request, reply) =>
    void (request.url === '/moved'
      ? reply.end(CONTENT)
      : reply.writeHead(302, { location: `${other}/moved` }).end());
  await expect(fetched({ authorization: () => 'Basic x' })).rejects.toThrow(
    'localhost, which is not allowed for projects',
  );
  await fetched({ authorization: () => 'Basic x', allowedHosts: [] });
  expect(seen.at(-1)).toMatchObject({ path: '/moved', authorization: undefined });
  await writeFile(join(dir, 'model.bin'), pointerText(CONTENT));
  content = (_, reply) => void reply.writeHead(302, { location: '/again' }).end();
  await expect(fetched()).rejects.toThrow('redirects more often than allowed');
});

it.each<[string, () => void, RegExp, string]>([
  [
    'other content',
    () => (content = (_, reply) => void reply.end(Buffer.alloc(CONTENT.length, 1))),
    /model\.bin: .* sends other content/,
    'git_failed',
  ],
  [
    'too little',
    () => (content = (_, reply) => void reply.end('x')),
    /sends other content .*\(1 of/,
    'git_failed',
  ],
  [
    'too much',
    () => (content = (_, reply) => void reply.end(Buffer.alloc(CONTENT.length + 1))),
    /sends more than/,
    'git_failed',
  ],
  [
    'a redirect to no address',
    () => (content = (_, reply) => void reply.writeHead(302, { location: 'http://[' }).end()),
    /model\.bin: the server names an invalid address/,
    'git_failed',
  ],
  [
    'a header that no request can have',
    () =>
      (batch.object = (oid) => ({
        actions: {
          download: { href: `${url.replace('/repo', '')}/${oid}`, header: { 'a b': '1' } },
        },
      })),
    /model\.bin: the server names an invalid address or header/,
    'git_failed',
  ],
  ['an answer that is no object', () => (batch.text = 'null'), /does not have it/, 'git_failed'],
  [
    'an answer with objects that are none',
    () => (batch.text = '{"objects":[null,1]}'),
    /does not have it/,
    'git_failed',
  ],
  [
    'an error for the file',
    () => (content = (_, reply) => void reply.writeHead(500).end()),
    /model\.bin: .* answered HTTP 500/,
    'git_failed',
  ],
  [
    'a file that it does not have',
    () => (batch.object = () => ({ error: { code: 404, message: 'no such object' } })),
    /does not have it: no such object\. Push it with git lfs push/,
    'git_failed',
  ],
  [
    'an address that is no web address',
    () => (batch.object = () => ({ actions: { download: { href: 'file:///etc/passwd' } } })),
    /invalid address/,
    'git_failed',
  ],
  [
    'an address in the network of the builder',
    () => (batch.object = () => ({ actions: { download: { href: 'http://10.0.0.1/x' } } })),
    /at 10\.0\.0\.1, which is not allowed/,
    'git_failed',
  ],
  [
    'a refusal',
    () => (batch.status = 401),
    /Set a git token that may read them/,
    'git_credentials',
  ],
  [
    'no LFS server',
    () => (batch.status = 404),
    /no Git LFS server .* Set git_lfs=false/,
    'git_failed',
  ],
  [
    'a redirect of the batch',
    () => (batch = { ...batch, status: 301, headers: { location: 'http://localhost/' } }),
    /redirects the request/,
    'git_failed',
  ],
])('a server with %s: the build fails and says so', async (_, prepare, message, code) => {
  prepare();
  const error: unknown = await fetched().catch((e: unknown) => e);
  expect(error).toMatchObject({ code, message: expect.stringMatching(message) });
});

it('pointers of an ssh address stay, and the text names some of them', async () => {
  const pointers = await found();
  expect(
    await fetchPointers(pointers, checkouts('git@git.example.com:team/repo.git'), options()),
  ).toEqual(pointers);
  expect(pointersText([], 'x')).toBe(null);
  expect(pointersText(pointers, 'set git_lfs=true')).toBe(
    '1 file is a Git LFS pointer, not its content: model.bin. The build gets the pointers: set ' +
      'git_lfs=true',
  );
});

it('more than 10 GiB are refused before the first request; a server that does not answer ends with the limit of the clone', async () => {
  const [pointer] = await found();
  if (pointer === undefined) throw new Error('no pointer');
  await expect(
    fetchPointers([{ ...pointer, size: 11 * 1024 ** 3 }], checkouts(), options()),
  ).rejects.toThrow('at most 10 GiB');
  expect(seen).toEqual([]);
  content = () => undefined;
  await expect(fetched({ until: performance.now() + 300 })).rejects.toMatchObject({
    code: 'git_timeout',
  });
  await writeFile(join(dir, 'model.bin'), pointerText(CONTENT));
  content = (_, reply) => void reply.writeHead(200).write('x');
  await expect(fetched({ until: performance.now() + 300 })).rejects.toMatchObject({
    code: 'git_timeout',
  });
  await writeFile(join(dir, 'model.bin'), pointerText(CONTENT));
  content = (_, reply) => void reply.writeHead(200).write('x', () => reply.destroy());
  await expect(fetched()).rejects.toMatchObject({ code: 'git_unreachable' });
});
