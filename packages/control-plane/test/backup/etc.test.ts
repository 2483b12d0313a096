/** Which files of /etc/berth a backup without keys has. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { readEtc } from '../../src/backup/etc.ts';

const DEPLOY = fileURLToPath(new URL('../../../../deploy', import.meta.url));

async function read(path: string, text: string, withKeys = false) {
  const folder = mkdtempSync(join(tmpdir(), 'berth-etc-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
  const found = await readEtc(folder, withKeys);
  if (found === null) throw new Error('there is no folder');
  return found;
}

test.each([
  ['control-plane.env.bak', 'AGENT_SECRET=canary\n'],
  ['.env~', 'AGENT_SECRET=canary\n'],
  ['gateway.env.save', 'LISTEN=canary\n'],
  ['gateway.env.dpkg-old', 'LISTEN=canary\n'],
  ['old/gateway.env', 'LISTEN=canary\n'],
  ['own.env', 'LISTEN=canary\n'],
  ['gateway.env', 'OIDC_CLIENT_SECRET=canary\n'],
  ['gateway.env', 'export OIDC_CLIENT_SECRET=canary\n'],
  ['gateway.env', '# OIDC_CLIENT_SECRET=canary\n'],
  ['gateway.env', '; canary\n'],
  ['gateway.env', 'LISTEN=127.0.0.1:80 # canary\n'],
  ['gateway.env', 'AGENT_SECRET="one\nLISTEN=canary\n"\n'],
  ['gateway.env', 'AGENT_SECRET=one\\\nLISTEN=canary\n'],
  ['gateway.env', "AGENT_SECRET='one\ncanary\n'\n"],
  ['gateway.env', 'canary\n'],
  ['gateway.env', 'GATEWAY_SECRET_FILE=canary\n'],
  ['proxy.env', 'OVH_CONSUMER_KEY=canary\n'],
  ['proxy.env', 'UNKNOWN=canary\n'],
  ['control-plane.env', 'OTEL_EXPORTER_OTLP_HEADERS=authorization=canary\n'],
  ['control-plane.env', 'DATABASE_URL=postgres://b:canary@db/b\n'],
  ['control-plane.env', 'DATABASE_URL=postgres://b:can/canary@db/b\n'],
  ['control-plane.env', 'DATABASE_URL=postgres://db/b?user=b&password=canary\n'],
  ['control-plane.env', 'PROXY_PROBE_URLS=https://b:canary@proxy\n'],
  ['control-plane.env', 'OTEL_EXPORTER_OTLP_ENDPOINT=https://collector/?token=canary\n'],
  ['traefik/traefik.toml', 'canary\n'],
  ['traefik/dynamic/own.yml', 'canary\n'],
  ['traefik/htpasswd', 'a:canary\n'],
  [
    'traefik/dynamic/middlewares.yml',
    'http: { middlewares: { a: { basicAuth: { users: ["a:canary"] } } } }\n',
  ],
  ['traefik/dynamic/middlewares.yml', '          Authorization: Bearer canary\n'],
  ['traefik/traefik.yml', 'http:\n  endpoint: https://b:canary@h/\n'],
  ['registry.yml', '  secretkey: canary\n'],
  ['registry.yml', '# password: canary\n'],
  ['secrets/gateway/GATEWAY_SECRET', 'canary\n'],
  ['acme.json', '{"key":"canary"}\n'],
])('without keys, nothing secret of %s: %j', async (path, text) => {
  const { etc, secrets } = await read(path, text);
  expect(JSON.stringify([etc.files, secrets])).not.toContain('canary');
  expect(etc.left_out).toEqual([{ path, why: expect.stringContaining('only with --with-keys') }]);
  expect(JSON.stringify(etc.left_out)).not.toContain('canary');
  const withKeys = await read(path, text, true);
  expect(withKeys.etc).toMatchObject({ files: [], left_out: [] });
  expect(withKeys.secrets).toMatchObject([{ path, text }]);
});

async function all(path: string, text: string): Promise<void> {
  const { etc } = await read(path, text);
  expect(etc.left_out).toEqual([]);
  expect(etc.files).toMatchObject([{ path, text }]);
}

test.each([
  [
    'control-plane.env',
    'LISTEN=127.0.0.1:8080\n\nDATABASE_URL=sqlite:/var/lib/berth/berth.db\nBACKUP_KEEP="24h 7d ' +
      '4w"\nREGISTRY_PASSWORD=\n',
  ],
  [
    'control-plane.env',
    'JWT_SECRET_FILE=/etc/berth/secrets/control-plane/JWT_SECRET\nADMIN_EMAILS=a@x.test,b@x.test\n',
  ],
  ['gateway.env', "OIDC_ISSUER=https://id.x.test/realm\nOIDC_NAME='sso'\n"],
  ['agent-deploy.env', 'NODE_ROLE=deploy\nHOST_IP=10.0.0.2\n'],
  ['proxy.env', 'TRAEFIK_BIN=/usr/local/bin/traefik\n'],
  ['compose/.env', 'BASE_DOMAIN=x.test\nENGINE_GID=999\n'],
] as const)('without keys, all of the variables of %s: %j', all);

test.each([
  ['registry.yml', 'registry/registry.yml'],
  ['traefik/traefik.yml', 'traefik/traefik.yml'],
  ['compose/compose.yml', 'compose.yml'],
  ...['middlewares', 'auth-host', 'dashboard', 'registry'].map((name) => [
    `traefik/dynamic/${name}.yml`,
    `traefik/dynamic/${name}.yml`,
  ]),
])('without keys, all of %s as berth install makes it', (path = '', from = '') =>
  all(path, readFileSync(join(DEPLOY, from), 'utf8')),
);
