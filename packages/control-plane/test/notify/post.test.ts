/** Requests to addresses that people chose: what they must not reach. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { createPost, isPrivateAddress } from '../../src/notify/post.ts';

test.each([
  '127.0.0.1',
  '0.0.0.0',
  '10.0.0.1',
  '100.64.0.1',
  '169.254.169.254',
  '172.31.255.255',
  '192.168.1.1',
  '224.0.0.1',
  '255.255.255.255',
  '::',
  '::1',
  '::ffff:127.0.0.1',
  '::ffff:7f00:1',
  '::ffff:10.0.0.1',
  '::127.0.0.1',
  'fe80::1',
  'fe80::1%eth0',
  'fd00::1',
  'ff02::1',
  '64:ff9b::7f00:1',
  '2002:7f00:1::',
  '2001:0:7f00:1::',
  '64:ff9b::101:101',
  '64:ff9b:1::101:101',
  '::ffff:0:127.0.0.1',
  '2001:db8::5efe:127.0.0.1',
  '2606:4700::200:5efe:127.0.0.1',
  'fec0::1',
  '192.0.0.8',
  'not an address',
])('%s is private', (address) => expect(isPrivateAddress(address)).toBe(true));

test.each(['1.1.1.1', '172.32.0.1', '192.167.1.1', '2606:4700::1111', '::ffff:1.1.1.1'])(
  '%s is public',
  (address) => expect(isPrivateAddress(address)).toBe(false),
);

const never = new AbortController().signal;

test('a name is checked at the address that is connected to', async () => {
  // The first lookup may have answered with a public address: only the one of this connection
  // counts.
  const post = createPost({
    allowedHosts: [],
    lookup: (_, __, done) => done(null, [{ address: '127.0.0.1', family: 4 }]),
  });
  expect(await post(new URL('https://rebinds.example.com/x'), {}, '{}', never)).toMatchObject({
    status: 0,
    text: expect.stringContaining('127.0.0.1 belongs to this machine') as string,
  });
});

test.each(['::ffff:127.0.0.1', '::ffff:7f00:1', '64:ff9b::7f00:1', '::1', 'fe80::1%lo', '0.0.0.0'])(
  'a name with the address %s is refused before a connection',
  async (address) => {
    const family = address.includes(':') ? 6 : 4;
    const post = createPost({
      allowedHosts: [],
      lookup: (_, __, done) => done(null, [{ address, family }]),
    });
    expect(
      await post(new URL('https://looks-public.example.com/x'), {}, '{}', never),
    ).toMatchObject({
      status: 0,
      text: expect.stringContaining('belongs to this machine or to a private network') as string,
    });
  },
);

test('the resolver is asked again for each delivery, and a name that moves to loopback reaches no server there', async () => {
  const reached: string[] = [];
  const server = createServer((request, reply) => {
    reached.push(request.url ?? '');
    reply.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  let asked = 0;
  // The name is private at first, so that the first delivery makes no connection; then its owner
  // moves it to loopback.
  const answers = ['10.255.255.1', '127.0.0.1'];
  const lookup: NonNullable<Parameters<typeof createPost>[0]['lookup']> = (_, __, done) =>
    done(null, [{ address: answers[asked++] ?? '127.0.0.1', family: 4 }]);
  const post = createPost({ allowedHosts: [], lookup });
  const target = new URL(`https://moves.example.com:${port}/x`);
  for (const address of answers)
    expect((await post(target, {}, '{}', never)).text).toContain(address);
  expect(asked).toBe(2);
  expect(reached).toEqual([]);
});

test('an allowed name opens its own address, and no other name or spelling of the same one', async () => {
  const reached: string[] = [];
  const server = createServer((request, reply) => {
    reached.push(request.headers.host ?? '');
    reply.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const post = createPost({ allowedHosts: ['localhost'] });
  expect((await post(new URL(`http://LOCALHOST:${port}/`), {}, '{}', never)).status).toBe(200);
  for (const other of [
    'http://127.0.0.1',
    'https://127.0.0.1',
    'https://[::ffff:127.0.0.1]',
    'https://x.localhost',
  ])
    expect((await post(new URL(`${other}:${port}/`), {}, '{}', never)).status, other).toBe(0);
  expect(reached).toEqual([`localhost:${port}`]);
});

test('one private address among public ones is enough to refuse', async () => {
  const addresses = [
    { address: '1.1.1.1', family: 4 },
    { address: 'fd00::1', family: 6 },
  ];
  const post = createPost({ allowedHosts: [], lookup: (_, __, done) => done(null, addresses) });
  expect(await post(new URL('https://both.example.com/x'), {}, '{}', never)).toMatchObject({
    status: 0,
  });
});

test('an answer without end is cut, and one that never comes has a time limit', async () => {
  const server = createServer((request, reply) => {
    if (request.url === '/silent') return;
    const more = (): void =>
      void (reply.write('x'.repeat(65_536)) ? setImmediate(more) : reply.once('drain', more));
    more();
    reply.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const post = createPost({ allowedHosts: ['127.0.0.1'], timeoutMs: 2_000 });
  const endless = await post(new URL(`${base}/endless`), {}, '{}', never);
  expect(endless.status).toBe(200);
  expect(endless.text).toHaveLength(16_384);
  const silent = createPost({ allowedHosts: ['127.0.0.1'], timeoutMs: 200 });
  expect(await silent(new URL(`${base}/silent`), {}, '{}', never)).toMatchObject({
    status: 0,
    text: 'no answer within 0.2 s',
  });
});

test.each([
  ['120', 120_000],
  [() => new Date(Date.now() + 120_000).toUTCString(), 120_000],
  [() => new Date(Date.now() - 120_000).toUTCString(), 0],
  ['soon', 0],
  ['-5', 0],
])('Retry-After: %s', async (value, ms) => {
  const server = createServer((_, reply) => {
    reply.writeHead(503, { 'retry-after': typeof value === 'string' ? value : value() }).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const post = createPost({ allowedHosts: ['127.0.0.1'] });
  const { retryAfterMs } = await post(
    new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
    {},
    '{}',
    never,
  );
  expect(retryAfterMs).toBeGreaterThanOrEqual(ms - (ms === 0 ? 0 : 20_000));
  expect(retryAfterMs).toBeLessThanOrEqual(ms);
});

test.each([
  ['hooks.internal,127.0.0.1,[fd00::1],fd00::2,chat_1.lan', null],
  ['chat.internal:8065', 'chat.internal:8065'],
  ['https://chat.internal', 'https://chat.internal'],
  ['*.internal', '*.internal'],
  ['10.0.0.0/8', '10.0.0.0/8'],
])('ALLOWED_NOTIFY_HOSTS=%s', (given, wrong) => {
  const read = () =>
    readConfig({
      LISTEN: '127.0.0.1:0',
      DATABASE_URL: 'sqlite::memory:',
      BASE_DOMAIN: 'example.com',
      REGISTRY_ADDR: 'r.example.com',
      ALLOWED_NOTIFY_HOSTS: given,
    });
  if (wrong === null) expect(read().ALLOWED_NOTIFY_HOSTS).toEqual(given.split(','));
  else
    expect(read).toThrow(
      'ALLOWED_NOTIFY_HOSTS: must be names or addresses without scheme, port and wildcard, not ' +
        `"${wrong}"`,
    );
});
