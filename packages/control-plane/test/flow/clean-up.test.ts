/** Which images a clean-up removes, and when it is due. */
import { describe, expect, it, test } from 'vitest';
import type { NodeRecord } from '../../src/domain/platform/records.ts';
import {
  cleanerOf,
  type CleanUpRecord,
  imagesOf,
  type ImageUse,
  nextCleanUpAt,
  repositoryPath,
} from '../../src/domain/deployments/clean-up.ts';

const digest = (name: string | number): string => `sha256:${String(name).padStart(64, '0')}`;
const use = (generation: number, over: Partial<ImageUse> = {}): ImageUse => ({
  generation,
  status: 'retired',
  image_tag: `r:5000/shop:${generation}`,
  image_digest: digest(generation),
  image_removed_at: null,
  image_deleting: false,
  ...over,
});
const removed = (uses: ImageUse[], keep = 2): string[] =>
  imagesOf(uses, keep).flatMap((one) => one.remove);

describe('the images of a project', () => {
  it('keeps those of the last releases that ran, and of what is in progress', () => {
    const uses = [
      use(1),
      use(2),
      use(3),
      use(4, { status: 'running' }),
      use(5, { status: 'failed' }),
      use(6, { status: 'built' }),
    ];
    expect(imagesOf(uses, 2)).toEqual([
      {
        repository: 'shop',
        remove: [digest(1), digest(2), digest(5)],
        keep: [digest(6), digest(4), digest(3)],
        keep_tags: [],
      },
    ]);
  });
  it('counts an image once, so that ten restarts push no older image out', () => {
    const restarts = Array.from({ length: 10 }, (_, i) =>
      use(10 + i, { image_digest: digest(2), image_tag: 'r:5000/shop:2' }),
    );
    expect(removed([use(1), use(2), ...restarts])).toEqual([]);
  });
  it('keeps an image that an old and a kept release share', () => {
    expect(
      removed([
        use(1, { image_digest: digest(9) }),
        use(2),
        use(3),
        use(4, { image_digest: digest(9) }),
      ]),
    ).toEqual([digest(2)]);
  });
  it('keeps the image of a rollback that was just requested', () => {
    expect(
      removed([
        use(1),
        use(2),
        use(3),
        use(4, { status: 'pending', image_digest: digest(1), image_tag: 'r:5000/shop:1' }),
      ]),
    ).toEqual([]);
  });
  it('names the tag of a kept image whose digest is unknown, and removes none without a digest', () => {
    const uses = [use(1, { image_digest: null }), use(2), use(3, { image_digest: null })];
    expect(imagesOf(uses, 2)).toEqual([
      { repository: 'shop', remove: [], keep: [digest(2)], keep_tags: ['3'] },
    ]);
  });
  it('compares images without the address of the registry, which may change', () => {
    const uses = [
      use(1, { image_tag: '127.0.0.1:5000/shop:a' }),
      use(2),
      use(3, { image_tag: 'registry.test/shop:a', image_digest: digest(1) }),
    ];
    expect(removed(uses)).toEqual([]);
  });
  it('tries again what an earlier clean-up could not confirm, and nothing that is gone', () => {
    const uses = [
      use(1, { image_removed_at: 1 }),
      use(2, { image_removed_at: 1, image_deleting: true }),
      use(3),
      use(4),
    ];
    expect(removed(uses)).toEqual([digest(2)]);
  });
});

test('the path of a repository has no address, tag or digest', () => {
  expect(repositoryPath('127.0.0.1:5000/shop:abc')).toBe('shop');
  expect(repositoryPath('registry.test/team/shop:abc')).toBe('team/shop');
  expect(repositoryPath(`r:5000/shop@${digest(1)}`)).toBe('shop');
});

test('a clean-up is due an interval after the last one, sooner after a failure or if images are left', () => {
  const HOUR = 3_600_000;
  const last = (over: Partial<CleanUpRecord>): CleanUpRecord[] => [
    { state: 'done', images_left: 0, requested_at: 0, finished_at: 0, ...over } as CleanUpRecord,
  ];
  expect(nextCleanUpAt([], 24 * HOUR, 5)).toBe(24 * HOUR + 5);
  expect(nextCleanUpAt(last({}), 24 * HOUR, 5)).toBe(24 * HOUR);
  expect(nextCleanUpAt(last({ state: 'failed' }), 24 * HOUR, 5)).toBe(HOUR);
  expect(nextCleanUpAt(last({ images_left: 3 }), 24 * HOUR, 5)).toBe(60_000);
  expect(nextCleanUpAt(last({}), null, 5)).toBeNull();
});

describe('the agent of a clean-up', () => {
  const agent = (hostname: string, over: Partial<NodeRecord> = {}): NodeRecord =>
    ({
      hostname,
      role: 'builder',
      capabilities: ['registry'],
      deleting_at: null,
      ...over,
    }) as NodeRecord;
  const choose = (...nodes: NodeRecord[]): string => {
    const chosen = cleanerOf(nodes, ({ hostname }) => !hostname.startsWith('off'));
    return 'node' in chosen
      ? `node ${chosen.node.hostname}`
      : `${chosen.several ? 'fails' : 'waits'}: ${chosen.why}`;
  };
  it('is the one with REGISTRY_CONFIG that is online', () => {
    expect(choose(agent('other', { capabilities: [] }), agent('a'))).toBe('node a');
    expect(choose(agent('off-1'), agent('a'))).toBe('node a');
    expect(choose(agent('gone', { deleting_at: 1 }), agent('a'))).toBe('node a');
  });
  it('is awaited when it is offline, or does not exist yet', () => {
    expect(choose(agent('off-1'))).toBe('waits: off-1, the machine of the registry, is offline');
    expect(choose(agent('a', { capabilities: null }))).toMatch(
      /^waits: no agent runs on the machine of the registry/,
    );
  });
  it('is none when two are online: one would make the registry writable while the other collects', () => {
    expect(choose(agent('b'), agent('a'), agent('a', { role: 'deploy' }))).toBe(
      'fails: these agents have REGISTRY_CONFIG: a (builder), a (deploy), b (builder); remove ' +
        'it from all but one',
    );
  });
});
