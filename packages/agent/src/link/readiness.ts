/** Answers /readyz of the agent. Pure, so that a test table can cover every reason. */
import type { OperatorNote } from '@berth/wire/system';

export type Readiness = {
  ready: boolean;
  reasons: string[];
  /**
   * The reason that does not go away by waiting; null if there is none. It is also in `reasons`.
   */
  refusal: string | null;
  /** Warnings that do not make the agent unready. */
  notes: string[];
  /** The same warnings with their kinds. */
  warnings: OperatorNote[];
};
export type ReadinessFacts = {
  /** Folders that the agent cannot write to (writable.ts). */
  folderProblems: readonly string[];
  /** Why a deploy node accepts no datasets; null if it does. */
  dataProblem: string | null;
  /** Why the control plane refuses this machine; null if it does not. */
  refusal: string | null;
  isRegistered: boolean;
  /** Time since the last successful registration in ms. */
  silentMs: number;
  hasRegistrySettings: boolean;
  hasPolledTasks: boolean;
  /** Null before the engine was first asked. */
  engineOk: boolean | null;
  portProblem: string | null;
  portNotes: OperatorNote[];
  diskNotes: string[];
};

/** The time of about three missed registrations in ms. */
const SILENT_MS = 100_000;

export function readinessOf(facts: ReadinessFacts): Readiness {
  const reasons: string[] = [...facts.folderProblems];
  if (facts.dataProblem !== null) reasons.push(`this node takes no datasets: ${facts.dataProblem}`);
  if (facts.refusal !== null) reasons.push(facts.refusal);
  else if (!facts.isRegistered) reasons.push('not registered yet');
  else if (facts.silentMs > SILENT_MS) reasons.push('the control plane does not answer');
  if (!facts.hasRegistrySettings) reasons.push('no configuration from the control plane yet');
  else if (!facts.hasPolledTasks) reasons.push('no task list from the control plane yet');
  if (facts.engineOk === false) reasons.push('the container engine does not answer');
  if (facts.portProblem !== null)
    reasons.push(`the firewall rules of PROXY_IPS are not in force: ${facts.portProblem}`);
  const warnings: OperatorNote[] = [
    ...facts.portNotes,
    ...facts.diskNotes.map((text) => ({ kind: 'other' as const, text })),
  ];
  return {
    ready: reasons.length === 0,
    reasons,
    refusal: facts.refusal,
    notes: warnings.map(({ text }) => text),
    warnings,
  };
}
