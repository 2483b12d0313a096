import type { Rotation } from '@berth/wire/rotation';
import { expect, test } from 'vitest';
import { SECRETS } from '../../src/rotate/names.ts';
import { usersOf } from '../../src/rotate/users.ts';

const NOW = Date.parse('2026-11-23T12:00:00Z');
const [NEW, OLD] = ['aaaaaaaaaaaa', 'bbbbbbbbbbbb'];
const at = (minutes: number): string => new Date(NOW + minutes * 60_000).toISOString();
const rotationOf = (more: Partial<Rotation> = {}): Rotation => ({
  control_planes: [],
  gateways: [],
  senders: [],
  signed: [],
  nodes: [],
  project_keys: {},
  ...more,
});
const controlPlane = (values: Record<string, string[]>, running = true) => ({
  name: 'host-a 127.0.0.1:8080',
  seen_at: at(0),
  running,
  values,
  key_id: 'k-new',
});
const gateway = (values: Record<string, string[]>, sends: string, running = true) => ({
  name: 'host-b 127.0.0.1:4180',
  address: '10.0.0.2',
  seen_at: at(0),
  running,
  values,
  sends,
});
const users = (name: keyof typeof SECRETS, rotation: Partial<Rotation>) =>
  usersOf(SECRETS[name], NEW, [OLD], rotationOf(rotation), NOW);

test('agent: nodes that sent another value block by name and time; those of unknown value too', () => {
  const node = (name: string, fingerprint: string | null, agent_version: string | null = null) => ({
    name,
    role: 'deploy',
    agent_version,
    fingerprint,
    seen_at: at(-1),
  });
  const nodes = [node('a', NEW), node('b', OLD), node('c', null, '0.1.0')];
  expect(
    users('agent', { nodes, control_planes: [controlPlane({ AGENT_SECRET: [NEW, OLD] })] })
      .blocking,
  ).toEqual([
    'node b (deploy, contract-only agent): last used the earlier value at 2026-11-23T11:59:00.000Z',
    expect.stringContaining('node c (deploy, agent 0.1.0): uses AGENT_SECRET'),
  ]);
});

test('gateway: processes without the new value in front, and recent senders of the earlier value', () => {
  const { blocking, notes } = users('gateway', {
    control_planes: [
      controlPlane({ GATEWAY_SECRET: [OLD, NEW] }),
      controlPlane({ GATEWAY_SECRET: [OLD] }, false),
    ],
    gateways: [gateway({ GATEWAY_SECRET: [NEW, OLD] }, OLD)],
    senders: [
      { fingerprint: OLD, address: '10.0.0.3', seen_at: at(-1) },
      { fingerprint: OLD, address: '10.0.0.4', seen_at: at(-30) },
    ],
  });
  expect(blocking).toEqual([
    'control plane host-a 127.0.0.1:8080: does not have the new value in front',
    expect.stringContaining('gateway host-b 127.0.0.1:4180: sent the earlier value'),
    expect.stringContaining('a gateway at 10.0.0.3'),
  ]);
  expect(notes).toEqual([expect.stringContaining('stopped reporting')]);
});

test('session and jwt: until the last thing that the earlier value signed has ended', () => {
  const signed = [
    { setting: 'SESSION_SECRET' as const, fingerprint: OLD, until: at(5) },
    { setting: 'SESSION_SECRET' as const, fingerprint: NEW, until: at(50) },
    { setting: 'JWT_SECRET' as const, fingerprint: OLD, until: at(-1) },
  ];
  expect(users('session', { signed }).blocking).toEqual([
    'sessions of people that the earlier value signed: until 2026-11-23T12:05:00.000Z',
  ]);
  expect(users('jwt', { signed }).blocking).toEqual([]);
});

test('secrets: project keys that another key wraps', () => {
  const control_planes = [controlPlane({ SECRETS_KEY: [NEW, OLD] })];
  expect(users('secrets', { control_planes, project_keys: { 'k-new': 3 } }).blocking).toEqual([]);
  expect(
    users('secrets', { control_planes, project_keys: { 'k-new': 3, 'k-old': 1 } }).blocking,
  ).toEqual(['1 project key wrapped by the key with the id k-old']);
});
