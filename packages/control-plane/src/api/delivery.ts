/**
 * Delivers the values of secrets to agents. The payload of a task contains only names; the database
 * has the values only sealed. An agent with the capability `secrets` gets the values in the answer
 * to its claim. Any other agent gets env secrets in the `env` of the payload that it reads, because
 * it has no other way; the stored payload does not change.
 */
import { createHash } from 'node:crypto';
import type { Logger } from '@berth/kit/log';
import type { RunPayload } from '@berth/wire/run-payload';
import { CAN_SECRETS } from '@berth/wire/secret';
import type { BuildPayload, ClaimedSecret, DeployPayload, TaskClaim } from '@berth/wire/task';
import { DomainError } from '../domain/platform/errors.ts';
import type { SecretPrint, TaskRecord } from '../domain/platform/records.ts';
import { vaultName, type SecretStore } from '../domain/secrets/secrets.ts';
import type { Vault } from '../domain/secrets/vault.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';

export type Delivered = {
  /** Fields for the answer to the claim. */
  claim: Pick<TaskClaim, 'secrets' | 'secrets_digest'>;
  /** Stores which secrets the deployment got. Call it after a successful claim. */
  record(): Promise<void>;
};
export type SecretDeliveries = {
  /**
   * Returns null if the task has no secrets, or if its agent cannot take them with a claim. Throws
   * secrets_locked.
   */
  forClaim(task: TaskRecord): Promise<Delivered | null>;
  /** Returns the tasks in the form that the agent of this node gets. */
  forList(nodeId: string, tasks: readonly TaskRecord[]): Promise<TaskRecord[]>;
};

type Values = { secrets: ClaimedSecret[]; prints: SecretPrint[]; missing: string[] };
/** Maximum number of tasks whose record is known to be current, so that a poll writes nothing. */
const MAX_RECORDED = 1_000;

export type Deps = {
  nodes: Pick<NodeStore, 'standing'>;
  secrets: Pick<SecretStore, 'delivered' | 'sealed'>;
  vault: Pick<Vault, 'of'>;
  now: () => number;
  log: Logger;
};

export function createDelivery(deps: Deps): SecretDeliveries {
  const { nodes, vault, now, log } = deps;
  const recorded = new Map<string, string>();

  const takesSecrets = async (nodeId: string): Promise<boolean> =>
    (await nodes.standing(nodeId))?.capabilities?.includes(CAN_SECRETS) === true;

  /**
   * Decrypts the current values of the secrets that the payload names. `missing`: secrets that were
   * deleted or got another scope.
   */
  async function valuesOf(task: TaskRecord): Promise<Values | null> {
    const pins = pinsOf(task);
    const projectId = projectOf(task);
    if (pins.length === 0 || projectId === null) return null;
    const scope = task.kind === 'build' ? 'build' : 'run';
    const sealed = await deps.secrets.sealed(
      projectId,
      pins.map(({ name }) => name),
    );
    const scopedSecrets = sealed.filter((s) => s.scope === scope);
    const project = scopedSecrets.length === 0 ? null : await vault.of(projectId);
    return {
      secrets: scopedSecrets.map(({ name, sealed }) => ({
        name,
        value: project?.open(vaultName(name), sealed).toString() ?? '',
        as: pins.find((pin) => pin.name === name)?.as ?? 'env',
      })),
      prints: scopedSecrets.map(({ name, fingerprint }) => ({ name, fingerprint })),
      missing: pins
        .map(({ name }) => name)
        .filter((name) => !scopedSecrets.some((s) => s.name === name)),
    };
  }

  async function record(task: TaskRecord, { prints, missing }: Values): Promise<void> {
    if (task.deployment_id === null) return;
    const digest = digestOf(prints) + missing.join(' ');
    if (recorded.get(task.id) === digest) return;
    await deps.secrets.delivered(
      task.deployment_id,
      { prints: task.kind === 'deploy' ? prints : null, missing },
      now(),
    );
    recorded.set(task.id, digest);
    const [oldest] = recorded.keys();
    if (recorded.size > MAX_RECORDED && oldest !== undefined) recorded.delete(oldest);
  }

  async function withEnv(task: TaskRecord): Promise<TaskRecord | null> {
    // The agent supported secrets when the task was created, and an older version has replaced it
    // since. The task must not run without its secrets: it is reassigned if nobody claims it in
    // time.
    if (task.kind === 'build' || pinsOf(task).some(({ as }) => as === 'file')) return null;
    try {
      const values = await valuesOf(task);
      if (values === null) return task;
      await record(task, values);
      const payload = task.payload as DeployPayload;
      const secrets = Object.fromEntries(values.secrets.map(({ name, value }) => [name, value]));
      return { ...task, payload: { ...payload, env: { ...payload.env, ...secrets } } };
    } catch (error) {
      if (!(error instanceof DomainError && error.code === 'secrets_locked')) throw error;
      // Keep offering the other tasks of the node. This one is reassigned if nobody claims it in
      // time.
      log.error(
        { err: error, task: task.id },
        'a task is not offered, because its secrets cannot be decrypted',
      );
      return null;
    }
  }

  return {
    async forClaim(task) {
      if (pinsOf(task).length === 0 || !(await takesSecrets(task.node_id))) return null;
      const values = await valuesOf(task);
      if (values === null) return null;
      return {
        claim: { secrets: values.secrets, secrets_digest: digestOf(values.prints) },
        record: () => record(task, values),
      };
    },

    async forList(nodeId, tasks) {
      const named = tasks.filter((task) => pinsOf(task).length > 0);
      if (named.length === 0 || (await takesSecrets(nodeId))) return [...tasks];
      const offered = await Promise.all(
        tasks.map(async (task) => (named.includes(task) ? withEnv(task) : task)),
      );
      return offered.filter((task) => task !== null);
    },
  };
}

/** The row of a `run` task names no project, because no plan decides about it. */
const projectOf = ({ kind, payload, project_id }: TaskRecord): string | null =>
  kind === 'run' ? (payload as RunPayload).project_id : project_id;

type Pin = { name: string; as?: ClaimedSecret['as'] };
const pinsOf = ({ kind, payload }: TaskRecord): readonly Pin[] =>
  kind === 'build' || kind === 'deploy' || kind === 'run'
    ? ((payload as BuildPayload | DeployPayload | RunPayload).secrets ?? [])
    : [];

/** Returns a digest of the fingerprints. They are HMACs, so the digest reveals nothing. */
const digestOf = (prints: readonly SecretPrint[]): string =>
  createHash('sha256')
    .update(JSON.stringify(prints.map(({ name, fingerprint }) => [name, fingerprint])))
    .digest('hex')
    .slice(0, 32);
