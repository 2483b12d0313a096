/** The words of the scale control and of the instances of a project. */
import { describe, expect, it, test } from 'vitest';
import type { PlacedInstance } from '@berth/wire/instance';
import { MAX_COUNT } from '@berth/wire/project';
import { FORM } from '../src/parts/project-fields.ts';
import { servingText, whyNotCount, whyOnlyOne } from '../src/pages/project/instances.tsx';

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
    const said = whyOnlyOne(project);
    if (why === null) expect(said).toBeNull();
    else expect(said).toMatch(why);
  });
});

it('the settings have controls with labels for the other fields, and none for the counts', () => {
  const names = FORM.map(({ name }) => name as string);
  expect(names).not.toContain('processes');
  for (const name of ['spread', 'sticky', 'on_node_lost'] as const)
    expect(FORM.find((field) => field.name === name)?.label, name).toMatch(/[a-z] |: /);
});
