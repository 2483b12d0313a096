/** A waiting deployment says at once that no node has a working container engine. */
import { describe, expect, it } from 'vitest';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import {
  builder,
  changeOf,
  dataset,
  DIGEST,
  facts,
  node,
  NOW,
  on,
  SETTINGS,
  waitingSince,
} from './fixtures.ts';

const dead = { engine: { ok: false, version: null, error: 'no socket' } };
const offline = { last_seen_at: NOW - 3_600_000 };
const tick = (d: DeploymentRecord, over: Partial<Facts>) => {
  const plan = advance(d, { type: 'tick' }, facts({ live: [d], ...over }));
  return { ...changeOf(plan, d.id), said: plan.storyLines.map((e) => e.message) };
};
const late = (d: DeploymentRecord): DeploymentRecord => waitingSince(d, NOW - 31 * 60_000);

describe.each([
  ['builder', on.pending(), builder, 'builder-1', 'no_builder'],
  ['deploy', on.built(), node, 'node-1', 'no_deploy_node'],
] as const)('%s nodes', (role, d, make, name, missing) => {
  it('all nodes report an engine that is down', () => {
    const nodes = [make(dead)];
    const { waiting, said } = tick(d, { nodes });
    expect(waiting).toBe(
      `no ${role} node has a working container engine: ${name} has a container engine that ` +
        'does not respond',
    );
    expect(said.at(-1)).toBe(`${waiting}: no socket`);
    expect(tick(late(d), { nodes })).toMatchObject({
      status: 'failed',
      error: { code: 'engine_unavailable' },
    });
  });
  it('the other nodes are not eligible even with a working engine', () => {
    const nodes = [
      make(dead),
      make({ id: 'x', hostname: 'x', ...offline }),
      make({ id: 'y', hostname: 'y', schedulable: false }),
    ];
    expect(tick(d, { nodes }).waiting).toMatch(
      new RegExp(`^no ${role} node has a working container engine: `),
    );
    expect(tick(late(d), { nodes }).error?.code).toBe('engine_unavailable');
  });
  it('an offline node says nothing about its engine', () => {
    const nodes = [make({ ...dead, ...offline })];
    expect(tick(d, { nodes }).waiting).toBe(`${name} is offline`);
    expect(tick(late(d), { nodes }).error?.code).toBe(missing);
  });
});

it('the only node with the data reports an engine that is down', () => {
  const use = { dataset_id: 's1', mode: 'dependency' as const };
  const d = on.built({ settings: { ...SETTINGS, datasets: [use] } });
  const cached = [
    { dataset_id: 's1', version: 3, bytes: 1000, manifest_digest: DIGEST, last_used_at: NOW },
  ];
  const nodes = [
    node({ id: 'n2', hostname: 'node-2' }),
    node({ ...dead, cached: cached as never }),
  ];
  const { waiting } = tick(d, { nodes, datasets: [dataset({ status: 'unreachable' })] });
  expect(waiting).toBe(
    'node-1 has a container engine that does not respond; ' +
      'node-2 does not have the newest version of dataset maps, which is unreachable and ' +
      'cannot be copied now',
  );
});
