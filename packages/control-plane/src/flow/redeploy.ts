/**
 * Deploys a running release again without a build, because its node is drained or its datasets have
 * newer versions. Pure.
 */
import type { Trigger } from '@berth/wire/deployment';
import type { Facts } from '../domain/deployments/facts.ts';
import type { Plan } from '../domain/deployments/plan.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import { addUnannounced, unannounced } from './data.ts';
import { request } from './deployment.ts';
import { createDraft } from './plan-draft.ts';

export type Redeploy = { id: string; note: string; trigger: Trigger };
const BERTH = { kind: 'system', id: null, name: 'Berth' } as const;

/**
 * Deploys the release of the running deployment `d` again. Returns null if `d` no longer runs, the
 * project is stopped or another deployment of the project is in progress.
 */
export function redeploy(
  { id, note, trigger }: Redeploy,
  d: DeploymentRecord,
  facts: Facts,
): Plan | null {
  const running = facts.live.find((o) => o.status === 'running');
  // Only a person can start a stopped project.
  if (facts.project.stopped_at !== null) return null;
  if (running?.id !== d.id || facts.live.length > 1) return null;
  const why = `requested: deployment ${d.generation} again; ${note}`;
  return request({ id, commit: null, note, release: running, why, by: BERTH, trigger }, facts);
}

/**
 * Adds a line to the story of the running deployment, once for each new version of its datasets.
 * With `on_dataset_change: redeploy`, also deploys the release again. Returns null if no change is
 * necessary.
 */
export function onDatasetChange(id: string, d: DeploymentRecord, facts: Facts): Plan | null {
  const running = facts.live.find((o) => o.status === 'running' && o.id === d.id);
  const news = running === undefined ? [] : unannounced(running, facts.datasets);
  if (running === undefined || news.length === 0) return null;
  const draft = createDraft(facts, 'dataset_changed');
  addUnannounced(draft, running);
  if (facts.project.on_dataset_change !== 'redeploy') return draft.plan;
  const note = news
    .map(({ pin, version }) => `dataset ${pin.name} is now at version ${version}`)
    .join(', ');
  const plan = redeploy({ id, note, trigger: 'data' }, running, facts);
  // If another deployment is in progress, it gets the new version when it is assigned to a node. If
  // it fails, the next check decides again.
  if (plan === null) return null;
  return {
    ...plan,
    changeDeployments: [...draft.plan.changeDeployments, ...plan.changeDeployments],
    storyLines: [...draft.plan.storyLines, ...plan.storyLines],
  };
}
