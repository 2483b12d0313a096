/**
 * TLS towards a real SMTP server: when it is required, and what happens where it is missing or
 * wrong.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeCertificate } from '@berth/testbed/certificate';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { createSendMail, type MailAnswer, requiresTls } from '../../src/notify/mail.ts';

/**
 * An address of this machine that is not loopback: to Berth, another machine. Nothing leaves this
 * machine.
 */
const OWN = Object.values(networkInterfaces())
  .flatMap((all) => all ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;

let certificate: { key: Buffer; cert: Buffer };
let foreign: { key: Buffer; cert: Buffer };
beforeAll(async () => {
  const make = async (name: string): Promise<typeof certificate> => {
    const dir = await mkdtemp(join(tmpdir(), 'berth-smtp-'));
    const { keyFile, certFile } = await makeCertificate(dir, 'smtp', [name]);
    const files = { key: await readFile(keyFile), cert: await readFile(certFile) };
    await rm(dir, { recursive: true });
    return files;
  };
  [certificate, foreign] = [await make('IP:127.0.0.1'), await make('DNS:another.example.com')];
});

type Seen = {
  logins: { user: string; encrypted: boolean }[];
  mails: { encrypted: boolean; body: string }[];
  port: number;
};
async function smtp(options: SMTPServerOptions, address = '127.0.0.1'): Promise<Seen> {
  const seen: Seen = { logins: [], mails: [], port: 0 };
  const server = new SMTPServer({
    authOptional: true,
    allowInsecureAuth: true,
    ...options,
    onAuth({ username = '' }, session, done) {
      seen.logins.push({ user: username, encrypted: session.secure });
      done(null, { user: username });
    },
    onData(stream, session, done) {
      let body = '';
      stream.on('data', (part) => (body += String(part)));
      stream.on('end', () => {
        seen.mails.push({ encrypted: session.secure, body });
        done();
      });
    },
  });
  server.on('error', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  onTestFinished(() => server.close());
  seen.port = (server.server.address() as AddressInfo).port;
  return seen;
}
const NO_TLS = { disabledCommands: ['STARTTLS'] };
/** Trusts the certificate of the test, as NODE_EXTRA_CA_CERTS does for a whole process. */
const trusted = (): string => `tls.ca=${encodeURIComponent(certificate.cert.toString())}`;
const send = (url: string): Promise<MailAnswer> =>
  createSendMail({ url, from: 'berth@example.com' })(
    { id: 'one', subject: 'Trouble', text: 'It failed.', to: ['ada@example.com'] },
    ['ada@example.com'],
    new AbortController().signal,
  );

test.each([
  ['smtp://mail.example.com:25', false],
  ['smtp://user:secret@mail.example.com:587', true],
  ['smtp://user:secret@10.0.0.9:587', true],
  ['smtp://user:secret@mail.example.com:587?requireTLS=false', false],
  ['smtp://mail.example.com:25?requireTLS=true', true],
  ['smtp://user:secret@127.0.0.1:25', false],
  ['smtp://user:secret@[::1]:25', false],
  ['smtp://user:secret@localhost:25', false],
  // A name only looks like loopback, and other spellings of an address are not worth a rule: TLS is
  // the safe side.
  ['smtp://user:secret@localhost.example.com:25', true],
  ['smtp://user:secret@2130706433:25', true],
])('%s requires TLS: %s', (url, required) => expect(requiresTls(url)).toBe(required));

test.each([
  ['smtp://mail.example.com:25', null],
  ['smtp://user:secret@mail.example.com:587?requireTLS=true', null],
  ['smtp://user:secret@mail.example.com:587?requireTLS=false&ignoreTLS=true', null],
  ['smtp://user:secret@127.0.0.1:25?ignoreTLS=true&opportunisticTLS=false', null],
  // TLS from the first byte has no STARTTLS that could be ignored.
  ['smtps://user:secret@mail.example.com:465?ignoreTLS=true', null],
  ['smtp://user:secret@mail.example.com:587?requireTLS=', 'requireTLS must be true or false'],
  ['smtp://user:secret@mail.example.com:587?requireTLS=0', 'requireTLS must be true or false'],
  ['smtp://user:secret@mail.example.com:587?requireTLS=no', 'requireTLS must be true or false'],
  [
    'smtp://user:secret@mail.example.com:587?requireTLS=true&requireTLS=false',
    'requireTLS must be true or false',
  ],
  ['smtp://user:secret@mail.example.com:587?ignoreTLS=1', 'ignoreTLS must be true or false'],
  ['smtp://user:secret@mail.example.com:587?ignoreTLS=true', 'ignoreTLS=true contradicts STARTTLS'],
  [
    'smtp://mail.example.com:25?requireTLS=true&opportunisticTLS=true',
    'opportunisticTLS=true contradicts STARTTLS',
  ],
])('the setting SMTP_URL=%s is accepted, or says why not: %s', (url, problem) => {
  const read = (): unknown =>
    readConfig({
      BASE_DOMAIN: 'example.com',
      JWT_SECRET: 'x'.repeat(40),
      SMTP_URL: url,
      SMTP_FROM: 'berth@example.com',
    });
  if (problem === null) return expect(read()).toMatchObject({ SMTP_URL: url });
  expect(read).toThrow(problem);
  expect(read).not.toThrow('secret@');
});

test('STARTTLS is used where the server offers it, also unasked, and the password follows it', async () => {
  const server = await smtp(certificate);
  const at = `127.0.0.1:${server.port}`;
  expect(await send(`smtp://ada:secret@${at}?${trusted()}`)).toMatchObject({
    accepted: ['ada@example.com'],
    error: null,
  });
  expect(await send(`smtp://ada:secret@${at}?requireTLS=true&${trusted()}`)).toMatchObject({
    error: null,
  });
  expect(server.logins).toEqual([
    { user: 'ada', encrypted: true },
    { user: 'ada', encrypted: true },
  ]);
  expect(server.mails.map(({ encrypted }) => encrypted)).toEqual([true, true]);
});

test('smtps:// is encrypted from the first byte, and a server without TLS gets nothing of it', async () => {
  const server = await smtp({ ...certificate, secure: true });
  expect(await send(`smtps://ada:secret@127.0.0.1:${server.port}?${trusted()}`)).toMatchObject({
    error: null,
  });
  expect(server.logins).toEqual([{ user: 'ada', encrypted: true }]);
  const plain = await smtp(NO_TLS);
  expect((await send(`smtps://ada:secret@127.0.0.1:${plain.port}`)).error).toMatchObject({
    isPermanent: false,
  });
  expect([...plain.logins, ...plain.mails]).toEqual([]);
});

test('a server that stops offering STARTTLS gets neither the password nor the mail', async () => {
  const server = await smtp(NO_TLS);
  const { accepted, error } = await send(
    `smtp://ada:secret@127.0.0.1:${server.port}?requireTLS=true`,
  );
  expect(accepted).toEqual([]);
  expect(error).toMatchObject({
    why: expect.stringContaining(
      'the SMTP server does not encrypt the connection (STARTTLS), so Berth sent nothing',
    ) as string,
    // An operator repairs the server, and what waits is sent then.
    isPermanent: false,
  });
  // Nor does a request to fall back weaken it.
  expect(
    (await send(`smtp://ada:secret@127.0.0.1:${server.port}?requireTLS=true&ignoreTLS=true`)).error,
  ).not.toBeNull();
  expect(
    (await send(`smtp://ada:secret@127.0.0.1:${server.port}?requireTLS=true&opportunisticTLS=true`))
      .error,
  ).not.toBeNull();
  expect([...server.logins, ...server.mails]).toEqual([]);
});

test.skipIf(OWN === undefined)(
  'a password goes to another machine in clear text only if SMTP_URL says so',
  async () => {
    const server = await smtp(NO_TLS, OWN);
    const url = `smtp://ada:secret@${OWN}:${server.port}`;
    expect((await send(url)).error?.why).toContain('does not encrypt the connection');
    expect([...server.logins, ...server.mails]).toEqual([]);
    // Neither another word nor a contradiction is such a word.
    for (const query of [
      'requireTLS=',
      'requireTLS=0',
      'requireTLS=no',
      'requireTLS=&ignoreTLS=1',
      'ignoreTLS=true',
      'opportunisticTLS=true',
    ])
      expect([query, (await send(`${url}?${query}`)).error?.why]).toEqual([
        query,
        expect.stringContaining('does not encrypt the connection'),
      ]);
    expect([...server.logins, ...server.mails]).toEqual([]);
    expect((await send(`${url}?requireTLS=false`)).error).toBeNull();
    expect(server.logins).toEqual([{ user: 'ada', encrypted: false }]);
    // Without a password there is no secret to lose.
    expect((await send(`smtp://${OWN}:${server.port}`)).error).toBeNull();
    expect(server.mails).toHaveLength(2);
  },
);

test.each<[string, () => SMTPServerOptions, (at: string) => string]>([
  ['nobody vouches for', () => certificate, (at) => `smtp://ada:secret@${at}`],
  [
    'belongs to another host',
    () => foreign,
    (at) => `smtp://ada:secret@${at}?tls.ca=${encodeURIComponent(foreign.cert.toString())}`,
  ],
  [
    'nobody vouches for, with smtps',
    () => ({ ...certificate, secure: true }),
    (at) => `smtps://ada:secret@${at}`,
  ],
])('a certificate that %s is refused with a sentence', async (_, options, url) => {
  const server = await smtp(options());
  const { error } = await send(url(`127.0.0.1:${server.port}`));
  expect(error).toMatchObject({
    why: expect.stringContaining(
      'the certificate of the SMTP server is not valid here: ',
    ) as string,
    isPermanent: false,
  });
  expect([...server.logins, ...server.mails]).toEqual([]);
});
