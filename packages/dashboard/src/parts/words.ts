/** Readable words for identifiers of the API: kinds, triggers, requesters. */
import type { DeploymentItem } from '@berth/wire/deployment';

/** Converts `deployment.running` to “deployment running”, `createUser` to “create user”. */
export const kindText = (kind: string): string =>
  kind
    .replaceAll(/([a-z])([A-Z])/g, '$1 $2')
    .replaceAll(/[._]/g, ' ')
    .toLowerCase();

const TRIGGERS: Readonly<Record<string, string>> = {
  hook: 'a push',
  rollback: 'a rollback',
  restart: 'a restart',
  start: 'a start',
  data: 'a new version of a dataset',
  drain: 'the drain of a node',
};
type Origin = Pick<DeploymentItem, 'trigger' | 'created_by'>;
/**
 * Describes a trigger. `api` covers every request for a deployment from source, so the requester
 * decides the text.
 */
export const triggerText = ({ trigger, created_by }: Origin): string =>
  TRIGGERS[trigger ?? ''] ??
  (created_by?.kind === 'token' ? 'a request of a program' : 'a request of a person');

/** Names the requester. The name of a hook is the name of its forge. */
export function requesterText({ trigger, created_by }: Origin): string {
  const name = created_by?.name ?? null;
  if (created_by?.kind === 'hook')
    return name === null || name === 'generic' ? 'a push' : `a push (${name})`;
  return name ?? (trigger === null ? '' : triggerText({ trigger, created_by }));
}
