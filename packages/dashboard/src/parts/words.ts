/** Words for values of the API that are names: kinds, triggers, requesters. */
import type { DeploymentItem } from '@berth/wire/deployment';

/** `deployment.running` is “deployment running”, `createDeployment` is “create deployment”. */
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
/** `api` is every request for a deployment from source. */
export const triggerText = ({ trigger, created_by }: Origin): string =>
  TRIGGERS[trigger ?? ''] ??
  (created_by?.kind === 'token' ? 'a request of a program' : 'a request of a person');

/** The requester. The name of a hook is its forge. */
export function requesterText({ trigger, created_by }: Origin): string {
  const name = created_by?.name ?? null;
  if (created_by?.kind === 'hook')
    return name === null || name === 'generic' ? 'a push' : `a push (${name})`;
  return name ?? (trigger === null ? '' : triggerText({ trigger, created_by }));
}
