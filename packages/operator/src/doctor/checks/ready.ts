/** Checks that each process answers, and reports its notes and problems. */
import type { OperatorNote } from '@berth/wire/system';
import { type Check, logOf, restartOf } from '../check.ts';
import { finding, note, notChecked, ok, type Result } from '../result.ts';
import type { InstalledRole } from '../roles.ts';

const CONSEQUENCES: Record<string, string> = {
  'control-plane': 'nobody can deploy; projects that run continue',
  gateway: 'nobody can sign in; projects with Require Auth answer with an error',
  relay: 'a Traefik that restarts while the control plane is down gets no routes',
  agent: 'this machine takes no work; containers that run continue',
};

/** Parts of /readyz that other checks explain. */
const EXPLAINED = new Set(['backups', 'secrets']);
/** Notes of /readyz that other checks explain. */
const EXPLAINED_NOTES: ReadonlySet<OperatorNote['kind']> = new Set([
  'node_version',
  'older_agents',
  'certificates',
]);

const REMEDIES: Record<string, string> = {
  database: 'look at its disk and server',
  'jwt secret': 'give all control planes the same JWT_SECRET',
  certificates: 'see docs/troubleshooting.md',
};

export const READY: Check = {
  name: 'processes',
  roles: ['control-plane', 'gateway', 'relay', 'agent'],
  async run({ instances, facts }) {
    const results = await Promise.all(
      instances.map(async (instance): Promise<Result[]> => {
        if ((await facts.urlOf(instance)) === null)
          return [
            notChecked(
              `${instance.name} has no address for /readyz; set LISTEN in ` +
                (instance.file ?? 'its environment'),
            ),
          ];
        const reached = await facts.readiness(instance);
        if ('problem' in reached) return [silent(instance, reached.problem)];
        const { parts, notes, warnings, reasons, status, state, controlPlane } = reached.value;
        const bad = parts.filter((part) => !part.ok && !EXPLAINED.has(part.name));
        const findings = [
          ...bad.map(({ name, detail }) =>
            finding(
              `${instance.name} reports: ${name}: ${detail}`,
              consequenceOf(instance, state),
              `${REMEDIES[name] ?? 'read the log'}: ${logOf(instance)}`,
            ),
          ),
          ...reasons.map((reason) =>
            finding(
              `${instance.name} is not ready: ${reason}`,
              consequenceOf(instance, state),
              logOf(instance),
            ),
          ),
          ...(controlPlane === 'answers'
            ? []
            : [
                finding(
                  `${instance.name} does not reach the control plane: ${controlPlane}`,
                  STALE,
                  `curl ${urlOfControlPlane(instance)}/readyz`,
                ),
              ]),
        ];
        if (findings.length === 0 && status !== 200)
          return [
            finding(
              `${instance.name} is not ready (${status})`,
              consequenceOf(instance, state),
              logOf(instance),
            ),
          ];
        return [
          ...(findings.length > 0 ? findings : [ok(`${instance.name} answers`)]),
          ...(warnings?.filter(({ kind }) => !EXPLAINED_NOTES.has(kind)).map(ofNote) ??
            notes.map(note)),
        ];
      }),
    );
    return results.flat();
  },
};

const STALE = 'it works with what it got last; changes do not arrive';

const urlOfControlPlane = ({ settings }: InstalledRole): string =>
  settings.get('CONTROL_PLANE_URL') ?? 'CONTROL_PLANE_URL';

/**
 * Returns a note for an unset setting, because leaving it unset can be a decision. Every other note
 * reports a failure, so it becomes a finding.
 */
const ofNote = ({ kind, text }: OperatorNote): Result =>
  kind === 'setting_missing'
    ? note(text)
    : finding(
        text,
        'see docs/operating.md "Is Berth healthy?"',
        'do what the sentence says, and run the doctor again',
      );

const consequenceOf = ({ role }: InstalledRole, state: string): string =>
  state === 'degraded' ? 'it serves, and a part of it fails' : (CONSEQUENCES[role] ?? '');

const silent = (instance: InstalledRole, problem: string): Result =>
  finding(
    `${instance.name}: ${problem}`,
    CONSEQUENCES[instance.role] ?? '',
    `${restartOf(instance)}, then ${logOf(instance)}`,
  );
