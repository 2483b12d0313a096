/** Creates the record of a new deployment with a copy of the settings. */
import type { CreatedBy, Trigger } from '@berth/wire/deployment';
import type { DeploymentRecord, ProjectRecord } from '../domain/platform/records.ts';
import { rolledBack, settingsFor } from './release.ts';

export type DeploymentRequest = {
  id: string;
  commit: string | null;
  note: string | null;
  /** The deployment of the same project whose release is deployed again. */
  release: DeploymentRecord | null;
  /** Replaces the default first line of the story. */
  why?: string;
  by?: CreatedBy | null;
  trigger?: Trigger;
  /** A scale up from 0 requests it: it does not start a project that a person stopped. */
  fromZero?: boolean;
  /** The deployment that serves now. */
  live?: DeploymentRecord | null;
};

export function newDeployment(
  { id, commit, note, release, by = null, trigger, live = null }: DeploymentRequest,
  project: ProjectRecord,
  now: number,
  ordinal: number,
): DeploymentRecord {
  const settings = settingsFor(project, release);
  const reason = trigger ?? (release === null ? 'api' : 'rollback');
  return {
    id,
    project_id: project.id,
    generation: project.last_generation + 1,
    status: 'pending',
    settings,
    requested_commit: commit,
    note,
    created_by: by,
    trigger: reason,
    branch: settings.branch,
    commit_message: release?.commit_message ?? null,
    commit_author: release?.commit_author ?? null,
    phases: [{ name: 'queue', started_at: now, ended_at: null }],
    rollback_of: release?.id ?? null,
    rolled_back:
      release !== null && reason === 'rollback'
        ? rolledBack({ settings, release, live }, project)
        : (release?.rolled_back ?? null),
    config: release?.config ?? null,
    error: null,
    cancel_requested_at: null,
    commit: release?.commit ?? null,
    image_tag: release?.image_tag ?? null,
    image_digest: release?.image_digest ?? null,
    image_arch: release?.image_arch ?? null,
    builder_id: null,
    node_id: null,
    container_id: null,
    host_port: null,
    instance_id: null,
    instance_number: 1,
    lost_since: null,
    route_published_at: null,
    placement: null,
    health: null,
    losses: [],
    datasets: null,
    waiting: null,
    waiting_reason: null,
    stopped_first: null,
    created_at: now,
    state_since: now,
    finished_at: null,
    timer: null,
    retry: null,
    secrets: null,
    builds_given_up: 0,
    ordinal,
    log_removed_at: null,
    story_removed_at: null,
  };
}
