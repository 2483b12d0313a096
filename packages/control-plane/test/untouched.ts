/**
 * A deployment that was just asked for, without what says which one it is: the fixtures of flow and
 * store add that.
 */
import type { DeploymentRecord } from '../src/domain/platform/records.ts';

type Which =
  | 'id'
  | 'project_id'
  | 'generation'
  | 'settings'
  | 'created_at'
  | 'state_since'
  | 'ordinal';

export const UNTOUCHED: Omit<DeploymentRecord, Which> = {
  status: 'pending',
  requested_commit: null,
  note: null,
  created_by: null,
  trigger: 'api',
  branch: 'main',
  commit_message: null,
  commit_author: null,
  phases: null,
  rollback_of: null,
  rolled_back: null,
  config: null,
  error: null,
  cancel_requested_at: null,
  commit: null,
  image_tag: null,
  image_digest: null,
  image_removed_at: null,
  image_arch: null,
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
  finished_at: null,
  timer: null,
  retry: null,
  secrets: null,
  builds_given_up: 0,
  log_removed_at: null,
  story_removed_at: null,
};
