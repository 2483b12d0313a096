/** The words of the scale control and of the instances of a project. */
import { describe, expect, it, test } from 'vitest';
import type { PlacedInstance } from '@berth/wire/instance';
import { MAX_COUNT } from '@berth/wire/project';
import { FORM } from '../src/parts/project-fields.ts';
import { servingPart, servingText, whyThere } from '../src/parts/instance-text.ts';
import { onlyOneText, whenCountApplies, whyNotCount } from '../src/pages/project/instances.tsx';

const wants = (count: number) => ({ processes: [{ name: 'web', count }] });
const states = (...all: PlacedInstance['state'][]): PlacedInstance[] =>
  all.map((state) => ({ state }) as PlacedInstance);

test.each([
  [states('serving'), 1, '1 instance serves'],
  [states('unhealthy'), 1, 'the instance does not serve'],
  [states('serving', 'serving', 'serving'), 3, '3 of 3 instances serve'],
  [states('serving', 'lost', 'waiting'), 2, '1 of 2 instances serve'],
  [states('serving', 'serving', 'draining'), 2, '2 of 2 instances serve'],
  [states(), 2, '0 of 2 instances serve'],
])('%# instances of %d wanted: %s', (instances, wanted, text) =>
  expect(servingText(instances, wanted)).toBe(text),
);

test.each([
  [states('serving'), 1, null],
  [states('serving', 'serving', 'lost'), 3, '2 of 3 instances'],
  [states('serving', 'serving'), 2, '2 instances'],
])('%# the lead of a project with %d wanted: %s', (instances, wanted, part) =>
  expect(servingPart(instances, wanted)).toBe(part),
);

test.each([
  [0, false, /^The project is scaled to 0: .* until you scale it up/],
  [0, true, /^The project is stopped\. The number takes effect when you start it/],
  [2, true, /^The project is stopped\. The number takes effect when you start it/],
])('count %d of a project that rests, stopped by a person: %s', (count, stopped_by_person, text) =>
  expect(whenCountApplies({ ...wants(count), stopped: true, stopped_by_person })).toMatch(text),
);

describe('each instance says why it is on its node', () => {
  const row = (node_id: string, score: number, given = {}) => ({
    ...{ node_id, hostname: node_id, eligible: true, reason: null, score },
    ...{ cached_dataset_count: 0, missing_bytes: 0, free_storage_bytes: 1, estimated_seconds: 0 },
    ...given,
  });
  const placed = (...items: ReturnType<typeof row>[]): PlacedInstance =>
    ({ node_id: 'a', placement: { winner: 'a', items } }) as unknown as PlacedInstance;
  test.each([
    [placed(row('a', 1.9, { cached_dataset_count: 1 }), row('b', 1)), /data is there; best score/],
    [placed(row('a', 1.9, { missing_bytes: 2 ** 30 }), row('b', 1)), /1.0 GiB to copy; best score/],
    [placed(row('a', 1), row('b', 2, { eligible: false })), /^no other node could take it$/],
    [placed(row('a', 0.6), row('b', 1.9)), /fewer instances/],
    [{ ...placed(row('a', 1)), placement: null }, null],
    [{ ...placed(row('a', 1)), node_id: 'b' }, null],
  ])('%#: %s', (instance, why) => {
    if (why === null) expect(whyThere(instance)).toBeNull();
    else expect(whyThere(instance)).toMatch(why);
  });
});

describe('the button says why a number cannot be set', () => {
  test.each([
    [null, 'enter a number'],
    [-1, `enter a whole number from 0 to ${MAX_COUNT}`],
    [1.5, `enter a whole number from 0 to ${MAX_COUNT}`],
    [MAX_COUNT + 1, `enter a whole number from 0 to ${MAX_COUNT}`],
    [2, 'it has this number already'],
    [3, null],
    [1, null],
    [0, null],
  ])('%j: %j', (count, why) => expect(whyNotCount(count, wants(2))).toBe(why));

  test.each([
    [{ volumes: [], datasets: [] }, null],
    [{ volumes: [], datasets: [{ dataset_id: 'd', mode: 'dependency' as const }] }, null],
    [{ volumes: [], datasets: [{ dataset_id: 'd', mode: 'readwrite' as const }] }, /dataset/],
    [{ volumes: [{ name: 'v', mount_path: '/v' }], datasets: [] }, /volumes.*one instance only/],
  ])('%j: %j', (project, why) => {
    const said = onlyOneText(project);
    if (why === null) expect(said).toBeNull();
    else expect(said).toMatch(why);
  });
});

it('the settings have controls with labels for the other fields, and none for the counts', () => {
  const names = FORM.map(({ name }) => name as string);
  expect(names).not.toContain('processes');
  for (const name of ['spread', 'sticky', 'on_node_lost', 'allow_exec', 'exec_role'] as const)
    expect(FORM.find((field) => field.name === name)?.label, name).toMatch(/[a-z] |: /);
});
