/** The notes of /readyz, which everybody may read, about certificates, routes and doubled nodes. */
import { expect, test } from 'vitest';
import { systemRoutes } from '../../src/api/routes/system.ts';

const HOSTS = ['a.secret.example.org', 'b.secret.example.org'];

test.each([
  [
    1,
    [
      '1 host has no good certificate: berth status names them',
      '1 route is not published: the log has the projects and the reasons',
    ],
  ],
  [
    2,
    [
      '2 hosts have no good certificate: berth status names them',
      '2 routes are not published: the log has the projects and the reasons',
    ],
  ],
  [0, []],
])('%i hosts: a count without names', async (count, expected) => {
  const handlers = new Map<string, (call: object) => Promise<unknown>>();
  const hosts = HOSTS.slice(0, count);
  const deps = {
    ping: async () => undefined,
    nodes: { listDoubled: async () => [], countUnlimited: async () => 0 },
    backups: { list: async () => [] },
    meta: { get: async () => null },
    source: {
      problems: () => hosts.map((host) => `${host}: has no address`),
      current: () => undefined,
    },
    certificates: {
      problems: () =>
        hosts.map((host) => ({ host, problem: `the proxy has no certificate for ${host}` })),
    },
    vault: { keys: async () => ({ all: 0, earlier: 0, locked: 0 }) },
    ...{
      loops: () => [],
      settings: { notes: [] },
      limits: { offlineMs: 1_000 },
      secretProblem: () => null,
      backupIntervalMs: null,
    },
    ...{ now: () => 0, nodeNotes: [], quarantine: { notes: () => [] }, openapi: {} },
  };
  systemRoutes(
    ((name: string, handler: (call: object) => Promise<unknown>) =>
      handlers.set(name, handler)) as never,
    deps as never,
  );
  let sent: { notes: string[] } | null = null;
  const reply = { code: () => reply, send: (body: { notes: string[] }) => void (sent = body) };
  await handlers.get('readyz')?.({ reply });
  expect(sent).toMatchObject({ notes: expected });
  expect(JSON.stringify(sent)).not.toContain('secret.example.org');
});
