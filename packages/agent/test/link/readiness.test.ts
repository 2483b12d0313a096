/** Why an agent is not ready. */
import { expect, it } from 'vitest';
import { readinessOf, type ReadinessFacts } from '../../src/link/readiness.ts';

const READY: ReadinessFacts = {
  folderProblems: [],
  dataProblem: null,
  refusal: null,
  isRegistered: true,
  silentMs: 30_000,
  hasRegistrySettings: true,
  hasPolledTasks: true,
  engineOk: true,
  portProblem: null,
  portNotes: [],
  diskNotes: [],
};

it('is ready without a problem, also before the engine was first asked', () => {
  expect(readinessOf(READY)).toEqual({
    ready: true,
    reasons: [],
    refusal: null,
    notes: [],
    warnings: [],
  });
  expect(readinessOf({ ...READY, engineOk: null }).ready).toBe(true);
});

it.each<[Partial<ReadinessFacts>, string]>([
  [
    { folderProblems: ['STATE_DIR (/x) cannot be written: ENOSPC'] },
    'STATE_DIR (/x) cannot be written: ENOSPC',
  ],
  [
    { dataProblem: 'SVC_ROOT (/x) was not usable' },
    'this node takes no datasets: SVC_ROOT (/x) was not usable',
  ],
  [
    { refusal: 'another machine has this name', isRegistered: false },
    'another machine has this name',
  ],
  [{ isRegistered: false }, 'not registered yet'],
  [{ silentMs: 100_001 }, 'the control plane does not answer'],
  [
    { hasRegistrySettings: false, hasPolledTasks: false },
    'no configuration from the control plane yet',
  ],
  [{ hasPolledTasks: false }, 'no task list from the control plane yet'],
  [{ engineOk: false }, 'the container engine does not answer'],
  [
    { portProblem: 'iptables: no such chain' },
    'the firewall rules of PROXY_IPS are not in force: iptables: no such chain',
  ],
])('with %o the reason is %s', (facts, reason) => {
  expect(readinessOf({ ...READY, ...facts })).toEqual({
    ready: false,
    reasons: [reason],
    refusal: facts.refusal ?? null,
    notes: [],
    warnings: [],
  });
});

it('notes do not make it unready', () => {
  expect(
    readinessOf({
      ...READY,
      portNotes: [{ kind: 'setting_missing', text: 'PROXY_IPS is not set' }],
      diskNotes: ['images use most of the budget'],
    }),
  ).toEqual({
    ready: true,
    reasons: [],
    refusal: null,
    notes: ['PROXY_IPS is not set', 'images use most of the budget'],
    warnings: [
      { kind: 'setting_missing', text: 'PROXY_IPS is not set' },
      { kind: 'other', text: 'images use most of the budget' },
    ],
  });
});

it('names all reasons', () => {
  expect(readinessOf({ ...READY, isRegistered: false, engineOk: false }).reasons).toHaveLength(2);
});
