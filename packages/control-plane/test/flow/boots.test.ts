/**
 * Restarts, and two machines under one name: which processes the registrations of a node come from.
 */
import { expect, test } from 'vitest';
import { type Boots, bootStep } from '../../src/domain/nodes/duplicate-agents.ts';

const OFFLINE = 120_000;

/**
 * Registrations of one node in order: `boot@second`, from the address of its machine (`a1` and `a2`
 * are processes on machine a).
 */
const heard = (...registers: string[]): Heard => hear(true, registers);
const heardUnproven = (...registers: string[]): Heard => hear(false, registers);
type Heard = { verdicts: string[]; boots: Boots | null; owner: string | null };
function hear(isProven: boolean, registers: string[]): Heard {
  const addressOf = (boot: string): string => `10.0.0.${boot.charCodeAt(0)}`;
  let node = {
    boot_id: null as string | null,
    host_ip: addressOf(registers[0] ?? ''),
    last_seen_at: 0,
    boots: null as Boots | null,
  };
  const verdicts = registers.map((text) => {
    const [boot = '', seconds] = text.split('@');
    const at = Number(seconds) * 1000;
    const given = { boot_id: boot, host_ip: addressOf(boot) };
    const isSilent = at - node.last_seen_at >= OFFLINE;
    const { verdict, boots } = bootStep({ ...node, isSilent }, { ...given, isProven }, at, OFFLINE);
    node = verdict === 'taken' ? { ...given, last_seen_at: at, boots } : { ...node, boots };
    return verdict;
  });
  return { verdicts, boots: node.boots, owner: node.boot_id };
}

test('restarts within seconds never count as a second machine', () => {
  expect(heard('a1@0', 'a2@2', 'a2@3', 'a3@4', 'a3@34', 'a4@35').verdicts).toEqual(
    Array(6).fill('taken'),
  );
});
test('a late request of a killed process changes nothing', () => {
  const { verdicts, owner, boots } = heard('a1@0', 'a2@2', 'a1@3', 'a2@32', 'a2@62');
  expect(verdicts).toEqual(['taken', 'taken', 'ignored', 'taken', 'taken']);
  expect([owner, boots?.doubled]).toEqual(['a2', null]);
});
test('with two machines the first one stays, and the other one is rejected and recorded', () => {
  const { verdicts, owner, boots } = heard(
    'a1@0',
    'b1@10',
    'a1@30',
    'b1@40',
    'a1@60',
    'b1@70',
    'a1@90',
    'b1@100',
  );
  expect(verdicts).toEqual([
    'taken',
    'taken',
    'ignored',
    'taken',
    'taken',
    'refused',
    'taken',
    'refused',
  ]);
  expect(owner).toBe('a1');
  expect(boots?.doubled).toEqual({
    boot_id: 'b1',
    host_ip: '10.0.0.98',
    why: 'boot',
    since: 60_000,
    last_seen_at: 100_000,
  });
});
test('a restart of either machine does not change which one stays', () => {
  const two = ['a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70'];
  expect(heard(...two, 'b2@80').verdicts.at(-1)).toBe('refused');
  expect(heard(...two, 'a2@80', 'b1@90').verdicts.slice(-2)).toEqual(['taken', 'refused']);
});
test('the other machine takes over after the first one has been silent for the offline time', () => {
  const two = ['a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70'];
  expect(heard(...two, 'b1@179').owner).toBe('a1');
  const after = heard(...two, 'b1@181');
  expect([after.owner, after.boots]).toEqual(['b1', null]);
});
test('the other machine is forgotten after it has been silent for the offline time', () => {
  expect(heard('a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70', 'a1@189').boots?.doubled).not.toBeNull();
  expect(heard('a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70', 'a1@191').boots).toBeNull();
});
test('without the node’s secret another machine is rejected from its first registration until the first one is silent', () => {
  const { verdicts, owner, boots } = heardUnproven(
    'a1@0',
    'b1@10',
    'a1@30',
    'b1@40',
    'a2@50',
    'b2@60',
    'a2@80',
    'b2@199',
    'b2@201',
  );
  expect(verdicts).toEqual([
    'taken',
    'refused',
    'taken',
    'refused',
    'taken',
    'refused',
    'taken',
    'refused',
    'other_node',
  ]);
  expect([owner, boots?.doubled?.boot_id]).toEqual(['a2', 'b2']);
  expect(heardUnproven('a1@0', 'b1@10').boots?.doubled).toMatchObject({
    boot_id: 'b1',
    host_ip: '10.0.0.98',
    why: 'boot',
  });
});
type NoBoots = {
  node: string | null;
  given: string | null;
  host: string;
  isSilent: boolean;
  isProven?: true;
};
test.each<[string, NoBoots, string]>([
  [
    'a contract-only agent at another address is accepted, because its address may have changed',
    { node: null, given: null, host: 'y', isSilent: false },
    'taken',
  ],
  [
    'a silent contract-only agent at another address is another machine',
    { node: null, given: null, host: 'y', isSilent: true },
    'other_node',
  ],
  [
    'a silent contract-only agent at its address is accepted',
    { node: null, given: null, host: 'x', isSilent: true },
    'taken',
  ],
  [
    'a contract-only agent may replace a Berth agent at its address',
    { node: 'a', given: null, host: 'x', isSilent: false },
    'taken',
  ],
  [
    'a contract-only agent at another address than the Berth agent is rejected',
    { node: 'a', given: null, host: 'y', isSilent: false },
    'refused',
  ],
  [
    'a contract-only agent at another address is accepted if an admin admits it',
    { node: 'a', given: null, host: 'y', isSilent: false, isProven: true },
    'taken',
  ],
  [
    'a Berth agent may replace a contract-only one at its address',
    { node: null, given: 'b', host: 'x', isSilent: false },
    'taken',
  ],
  [
    'a Berth agent at another address than the contract-only one is rejected',
    { node: null, given: 'b', host: 'y', isSilent: false },
    'refused',
  ],
])('without boot ids: %s', (_, { node, given, host, isSilent, isProven = false }, verdict) => {
  const step = bootStep(
    { boot_id: node, host_ip: 'x', last_seen_at: 0, isSilent, boots: null },
    { boot_id: given, host_ip: host, isProven },
    1,
    OFFLINE,
  );
  expect(step.verdict).toBe(verdict);
  expect(step.boots?.doubled ?? null).toEqual(
    verdict === 'refused'
      ? { boot_id: given ?? '', host_ip: 'y', why: 'boot', since: 1, last_seen_at: 1 }
      : null,
  );
});
