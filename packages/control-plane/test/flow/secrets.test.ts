/**
 * Decisions about secrets: which names a task gets, which nodes can take it, what a rollback says.
 */
import { describe, expect, test } from 'vitest';
import type { SecretRecord } from '../../src/domain/secrets/secrets.ts';
import { noNodeCan, secretNeeds, secretsLine } from '../../src/flow/secrets.ts';
import { advance, request } from '../../src/flow/deployment.ts';
import { builder, facts, node, old, on } from './fixtures.ts';

const secret = (name: string, over: Partial<SecretRecord> = {}): SecretRecord => ({
  name,
  fingerprint: `print of ${name}`,
  scope: 'run',
  as: 'env',
  set_by: null,
  set_at: 1,
  ...over,
});
const ENV = secret('TOKEN');
const FILE = secret('CERT', { as: 'file' });
const BUILD = secret('NPM', { scope: 'build' });
const ALL = [ENV, FILE, BUILD];
const able = { capabilities: ['secrets', 'secret_files'] };
const nodes = [builder(able), node(able)];

describe('a task', () => {
  test('names the secrets of its kind, without values; without secrets its payload is as before', () => {
    const pending = on.pending();
    const built = on.built();
    const build = advance(
      pending,
      { type: 'tick' },
      facts({ live: [pending], nodes, secrets: ALL }),
    ).createTasks[0];
    expect(build?.payload).toMatchObject({ secrets: [{ name: 'NPM' }] });
    const start = advance(built, { type: 'tick' }, facts({ live: [built], nodes, secrets: ALL }))
      .createTasks[0];
    expect(start?.payload).toMatchObject({
      secrets: [
        { name: 'TOKEN', as: 'env' },
        { name: 'CERT', as: 'file' },
      ],
    });
    const plain = advance(built, { type: 'tick' }, facts({ live: [built], nodes })).createTasks[0];
    expect(plain?.payload).not.toHaveProperty('secrets');
  });
});

describe('a node whose agent cannot do it', () => {
  test('is not chosen while another one can', () => {
    const built = on.built();
    const rich = node({ id: 'n0', free_storage: 9e9, capabilities: null });
    const plan = advance(
      built,
      { type: 'tick' },
      facts({ live: [built], nodes: [rich, node(able)], secrets: [FILE] }),
    );
    expect(plan.createTasks[0]?.node_id).toBe('n1');
    const pending = on.pending();
    const both = [builder({ id: 'b0', hostname: 'a-builder' }), builder(able)];
    expect(
      advance(pending, { type: 'tick' }, facts({ live: [pending], nodes: both, secrets: [BUILD] }))
        .createTasks[0]?.node_id,
    ).toBe('b1');
  });

  test('and is the only one: the deployment fails with agent_cannot and names the secrets, before a task exists', () => {
    for (const [d, secrets, name] of [
      [on.pending(), [BUILD], 'NPM'],
      [on.built(), [FILE], 'CERT'],
    ] as const) {
      const plan = advance(
        d,
        { type: 'tick' },
        facts({ live: [d], nodes: [builder(), node()], secrets }),
      );
      expect(plan.changeDeployments[0]?.set).toMatchObject({
        status: 'failed',
        error: { code: 'agent_cannot', message: expect.stringContaining(name) },
      });
      expect(plan.createTasks).toEqual([]);
    }
  });

  test('but another one is offline: the deployment waits', () => {
    const built = on.built();
    const away = node({ id: 'n2', hostname: 'away', last_seen_at: 0, ...able });
    const plan = advance(
      built,
      { type: 'tick' },
      facts({ live: [built], nodes: [node(), away], secrets: [FILE] }),
    );
    expect(plan.changeDeployments[0]?.set).toMatchObject({
      waiting: expect.stringMatching(/away is offline; .*cannot mount the secret CERT as a file/),
    });
    expect(plan.createTasks).toEqual([]);
  });

  test('takes env secrets: they come in its payload', () => {
    const built = on.built();
    expect(
      advance(built, { type: 'tick' }, facts({ live: [built], nodes: [node()], secrets: [ENV] }))
        .createTasks,
    ).toHaveLength(1);
    expect(secretNeeds([ENV], 'deploy')).toEqual([]);
    expect(noNodeCan(secretNeeds([FILE], 'deploy'), [])).toBeNull();
  });
});

describe('a rollback', () => {
  const print = ({ name, fingerprint }: SecretRecord) => ({ name, fingerprint });
  test('names the secrets that differ from the release', () => {
    const release = {
      generation: 3,
      secrets: [
        print(ENV),
        { name: 'CERT', fingerprint: 'old' },
        { name: 'GONE', fingerprint: 'x' },
      ],
    };
    expect(secretsLine(release, [...ALL, secret('FRESH')])).toBe(
      'uses the current secrets; since deployment 3, CERT has another value; FRESH is new; ' +
        'GONE was deleted',
    );
    expect(secretsLine({ generation: 3, secrets: [print(ENV), print(FILE)] }, ALL)).toBeNull();
    expect(secretsLine({ generation: 3, secrets: null }, [BUILD])).toBeNull();
  });
  test('has the line in its story', () => {
    const release = old({ status: 'retired', secrets: [{ name: 'TOKEN', fingerprint: 'old' }] });
    const input = {
      id: 'd9',
      release,
      commit: null,
      note: null,
      created_by: null,
      trigger: 'rollback',
    } as unknown as Parameters<typeof request>[0];
    const plan = request(input, facts({ live: [], secrets: [ENV] }));
    expect(plan.storyLines.find(({ kind }) => kind === 'secrets')?.message).toContain(
      'TOKEN has another value',
    );
  });
});
