/** A restart, or two machines under one name: which processes a node's registers come from. */
import { expect, test } from 'vitest';
import { type Boots, bootStep } from '../../src/domain/boots.ts';

const OFFLINE = 120_000;

/** Registers of one node, in turn: `boot@second`, from the address of its machine (`a1` and `a2` are processes on machine a). */
const heard = (...registers: string[]): Heard => hear(true, registers);
const heardUnproven = (...registers: string[]): Heard => hear(false, registers);
type Heard = { verdicts: string[]; boots: Boots | null; owner: string | null };
function hear(isProven: boolean, registers: string[]): Heard {
  const addressOf = (boot: string): string => `10.0.0.${boot.charCodeAt(0)}`;
  let node = { boot_id: null as string | null, host_ip: addressOf(registers[0] ?? ''), last_seen_at: 0, boots: null as Boots | null };
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

test('a restart within seconds is no second machine, however often it happens', () => {
  expect(heard('a1@0', 'a2@2', 'a2@3', 'a3@4', 'a3@34', 'a4@35').verdicts).toEqual(Array(6).fill('taken'));
});
test('a request of the killed process that arrives late changes nothing, and its successor goes on', () => {
  const { verdicts, owner, boots } = heard('a1@0', 'a2@2', 'a1@3', 'a2@32', 'a2@62');
  expect(verdicts).toEqual(['taken', 'taken', 'ignored', 'taken', 'taken']);
  expect([owner, boots?.doubled]).toEqual(['a2', null]);
});
test('two machines: the first stays, the other is refused and known', () => {
  const { verdicts, owner, boots } = heard('a1@0', 'b1@10', 'a1@30', 'b1@40', 'a1@60', 'b1@70', 'a1@90', 'b1@100');
  expect(verdicts).toEqual(['taken', 'taken', 'ignored', 'taken', 'taken', 'refused', 'taken', 'refused']);
  expect(owner).toBe('a1');
  expect(boots?.doubled).toEqual({ boot_id: 'b1', host_ip: '10.0.0.98', why: 'boot', since: 60_000, last_seen_at: 100_000 });
});
test('a restart of either machine does not change who stays', () => {
  const two = ['a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70'];
  expect(heard(...two, 'b2@80').verdicts.at(-1)).toBe('refused');
  expect(heard(...two, 'a2@80', 'b1@90').verdicts.slice(-2)).toEqual(['taken', 'refused']);
});
test('when the first has been silent for the offline time the other takes over', () => {
  const two = ['a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70'];
  expect(heard(...two, 'b1@179').owner).toBe('a1');
  const after = heard(...two, 'b1@181');
  expect([after.owner, after.boots]).toEqual(['b1', null]);
});
test('the other is forgotten when it is silent', () => {
  expect(heard('a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70', 'a1@189').boots?.doubled).not.toBeNull();
  expect(heard('a1@0', 'b1@10', 'a1@30', 'a1@60', 'b1@70', 'a1@191').boots).toBeNull();
});
test('without the node’s secret another machine is refused from its first register on, until the first is silent', () => {
  const { verdicts, owner, boots } = heardUnproven('a1@0', 'b1@10', 'a1@30', 'b1@40', 'a2@50', 'b2@60', 'a2@80', 'b2@199', 'b2@201');
  expect(verdicts).toEqual(['taken', 'refused', 'taken', 'refused', 'taken', 'refused', 'taken', 'refused', 'another']);
  expect([owner, boots?.doubled?.boot_id]).toEqual(['a2', 'b2']);
  expect(heardUnproven('a1@0', 'b1@10').boots?.doubled).toMatchObject({ boot_id: 'b1', host_ip: '10.0.0.98', why: 'boot' });
});
type NoBoots = { node: string | null; given: string | null; host: string; isSilent: boolean; isProven?: true };
test.each<[string, NoBoots, string]>([
  ['of a contract-only agent, at another address: it may have got that', { node: null, given: null, host: 'y', isSilent: false }, 'taken'],
  ['of a contract-only agent, silent, at another address', { node: null, given: null, host: 'y', isSilent: true }, 'another'],
  ['of a contract-only agent, silent, at its address', { node: null, given: null, host: 'x', isSilent: true }, 'taken'],
  ['of a contract-only agent in place of a Berth agent', { node: 'a', given: null, host: 'x', isSilent: false }, 'taken'],
  ['of a contract-only agent elsewhere than a Berth agent', { node: 'a', given: null, host: 'y', isSilent: false }, 'refused'],
  ['the same, which an admin lets in', { node: 'a', given: null, host: 'y', isSilent: false, isProven: true }, 'taken'],
  ['of a Berth agent in place of a contract-only one', { node: null, given: 'b', host: 'x', isSilent: false }, 'taken'],
  ['of a Berth agent elsewhere than a contract-only one', { node: null, given: 'b', host: 'y', isSilent: false }, 'refused'],
])('without boot ids: %s', (_, { node, given, host, isSilent, isProven = false }, verdict) => {
  const step = bootStep(
    { boot_id: node, host_ip: 'x', last_seen_at: 0, isSilent, boots: null },
    { boot_id: given, host_ip: host, isProven },
    1,
    OFFLINE,
  );
  expect(step.verdict).toBe(verdict);
  expect(step.boots?.doubled ?? null).toEqual(
    verdict === 'refused' ? { boot_id: given ?? '', host_ip: 'y', why: 'boot', since: 1, last_seen_at: 1 } : null,
  );
});
