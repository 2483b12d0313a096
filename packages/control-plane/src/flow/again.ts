/** A release that runs is deployed once more, nothing built: its node is to be emptied, or its data has moved on. Pure. */
import type { Trigger } from '@berth/wire/deployment';
import type { Facts } from '../domain/facts.ts';
import type { Plan } from '../domain/plan.ts';
import type { DeploymentRecord } from '../domain/records.ts';
import { datasetsChanged, untold } from './data.ts';
import { request } from './deployment.ts';
import { createDraft } from './draft.ts';

type Again = { id: string; note: string; trigger: Trigger };
const BERTH = { kind: 'system', id: null, name: 'Berth' } as const;

/** Null: it no longer runs, or another deployment of the project is under way, which does the same or is what somebody wants more. */
export function again({ id, note, trigger }: Again, d: DeploymentRecord, facts: Facts): Plan | null {
  const running = facts.live.find((o) => o.status === 'running');
  if (running?.id !== d.id || facts.live.length > 1) return null;
  const why = `requested: deployment ${d.generation} once more; ${note}`;
  return request({ id, commit: null, note, release: running, why, by: BERTH, trigger }, facts);
}

/** As the project has it: a line in the story, or a deployment too, once for each version. Null: there is nothing to do. */
export function onDatasetChange(id: string, d: DeploymentRecord, facts: Facts): Plan | null {
  const running = facts.live.find((o) => o.status === 'running' && o.id === d.id);
  const news = running === undefined ? [] : untold(running, facts.datasets);
  if (running === undefined || news.length === 0) return null;
  const draft = createDraft(facts, 'dataset_changed');
  datasetsChanged(draft, running);
  if (facts.project.on_dataset_change !== 'redeploy') return draft.plan;
  const note = news.map(({ pin, version }) => `dataset ${pin.name} is now at version ${version}`).join(', ');
  const plan = again({ id, note, trigger: 'data' }, running, facts);
  // One that is under way takes the new version when it goes to its node; when it fails, this is looked at again.
  if (plan === null) return null;
  return { ...plan, deployments: [...draft.plan.deployments, ...plan.deployments], events: [...draft.plan.events, ...plan.events] };
}
