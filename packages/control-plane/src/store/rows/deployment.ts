import { defined } from '@berth/kit/defined';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type {
  DeploymentRecord,
  DeploymentSummary,
  EventRecord,
  Failure,
} from '../../domain/platform/records.ts';
import type { NewRow, Row } from '../engine/tables.ts';
import { jsonColumn } from './json.ts';

type Settings = DeploymentRecord['settings'];
/** Settings that older versions did not have. */
type Later =
  | 'on_dataset_change'
  | 'deploy_on_push'
  | 'watch_paths'
  | 'volumes'
  | 'start_seconds'
  | 'build_context'
  | 'build_target'
  | 'build_args'
  | 'submodules'
  | 'requires'
  | 'git_lfs';
type OldSettings = Omit<Settings, Later> & Partial<Pick<Settings, Later>>;

/** Returns columns for the given fields only. */
export function deploymentColumns<T extends Partial<DeploymentRecord>>(
  record: T,
): T extends DeploymentRecord ? NewRow<'deployments'> : Partial<NewRow<'deployments'>>;
export function deploymentColumns({
  settings,
  error,
  placement,
  health,
  losses,
  datasets,
  timer,
  retry,
  secrets,
  created_by,
  phases,
  image_missing: _missing,
  rolled_back,
  waiting_reason,
  ...plain
}: Partial<DeploymentRecord>): Partial<NewRow<'deployments'>> {
  return {
    ...plain,
    ...errorColumns(error),
    ...healthColumns(health),
    ...defined({
      settings: jsonColumn(settings),
      domain_prefix: settings?.domain_prefix,
      memory_bytes: settings?.memory_bytes,
      placement: jsonColumn(placement),
      losses: jsonColumn(losses),
      datasets: jsonColumn(datasets),
      timer: jsonColumn(timer),
      secrets: jsonColumn(secrets),
      created_by: jsonColumn(created_by),
      rolled_back: jsonColumn(rolled_back),
      phases: jsonColumn(phases),
      retry: jsonColumn(retry),
      waiting_reason: jsonColumn(waiting_reason),
    }),
  };
}

const errorColumns = (
  error: DeploymentRecord['error'] | undefined,
): Partial<NewRow<'deployments'>> =>
  error === undefined
    ? {}
    : { error_code: error?.code ?? null, error_message: error?.message ?? null };

const healthColumns = (
  health: DeploymentRecord['health'] | undefined,
): Partial<NewRow<'deployments'>> =>
  health === undefined
    ? {}
    : {
        health_status: health?.status ?? null,
        health_since: health?.since ?? null,
        health_detail: health?.detail ?? null,
      };

/** The columns for lists of deployments. */
export const SUMMARY_COLUMNS = [
  'id',
  'project_id',
  'generation',
  'status',
  'domain_prefix',
  'requested_commit',
  'note',
  'created_by',
  'trigger',
  'branch',
  'commit_message',
  'commit_author',
  'phases',
  'rollback_of',
  'rolled_back',
  'error_code',
  'error_message',
  'waiting',
  'cancel_requested_at',
  'commit',
  'image_tag',
  'image_digest',
  'image_removed_at',
  'node_id',
  'host_port',
  'health_status',
  'health_since',
  'health_detail',
  'datasets',
  'ordinal',
  'created_at',
  'finished_at',
  'log_removed_at',
  'story_removed_at',
] as const satisfies (keyof Row<'deployments'>)[];
type SummaryRow = Pick<Row<'deployments'>, (typeof SUMMARY_COLUMNS)[number]>;

export function summaryOf({ ordinal, ...row }: SummaryRow): DeploymentSummary {
  const {
    error_code: _code,
    error_message: _message,
    health_status: _status,
    health_since: _since,
    health_detail: _detail,
    ...plain
  } = row;
  return { ...plain, ...partsOf(row) };
}

/** Returns the fields that a summary and a full record have in common. */
const partsOf = (
  row: Omit<SummaryRow, 'ordinal'>,
): Pick<
  DeploymentRecord,
  'error' | 'health' | 'datasets' | 'created_by' | 'phases' | 'rolled_back'
> => ({
  rolled_back:
    row.rolled_back === null
      ? null
      : (JSON.parse(row.rolled_back) as DeploymentRecord['rolled_back']),
  created_by:
    row.created_by === null ? null : (JSON.parse(row.created_by) as DeploymentRecord['created_by']),
  phases: row.phases === null ? null : (JSON.parse(row.phases) as DeploymentRecord['phases']),
  error:
    row.error_code === null
      ? null
      : { code: row.error_code as Failure['code'], message: row.error_message ?? '' },
  health:
    row.health_status === null
      ? null
      : { status: row.health_status, since: row.health_since ?? 0, detail: row.health_detail },
  datasets:
    row.datasets === null ? null : (JSON.parse(row.datasets) as DeploymentRecord['datasets']),
});

export function deploymentOf(row: Row<'deployments'>): DeploymentRecord {
  const {
    settings,
    domain_prefix: _copy,
    memory_bytes: _memory,
    error_code: _code,
    error_message: _message,
    placement,
    health_status: _status,
    health_since: _since,
    health_detail: _detail,
    losses,
    timer,
    retry,
    secrets,
    ordinal,
    thinned_at: _thinned,
    settings_digest: _digest,
    secrets: _secrets,
    image_deleting: _deleting,
    image_missing,
    waiting_reason,
    ...plain
  } = row;
  return {
    ...plain,
    settings: { ...laterDefaults(), ...(JSON.parse(settings) as OldSettings) },
    ...defined({ image_missing: image_missing === 1 ? true : undefined }),
    ...partsOf(row),
    placement: placement === null ? null : (JSON.parse(placement) as DeploymentRecord['placement']),
    losses: JSON.parse(losses) as DeploymentRecord['losses'],
    timer: timer === null ? null : (JSON.parse(timer) as DeploymentRecord['timer']),
    waiting_reason:
      waiting_reason === null
        ? null
        : (JSON.parse(waiting_reason) as DeploymentRecord['waiting_reason']),
    retry: retry === null ? null : (JSON.parse(retry) as DeploymentRecord['retry']),
    secrets: secrets === null ? null : (JSON.parse(secrets) as DeploymentRecord['secrets']),
    ordinal: ordinal ?? plain.created_at,
  };
}

export const eventOf = ({
  at,
  kind,
  message,
  count,
  first_at,
}: Row<'deployment_events'>): EventRecord => ({
  at,
  kind,
  message,
  ...defined({
    count: first_at === null ? undefined : count,
    since: first_at ?? undefined,
  }),
});

const laterDefaults = (): Pick<Settings, Later> => ({
  on_dataset_change: PROJECT_DEFAULTS.on_dataset_change,
  deploy_on_push: PROJECT_DEFAULTS.deploy_on_push,
  start_seconds: PROJECT_DEFAULTS.start_seconds,
  build_context: PROJECT_DEFAULTS.build_context,
  build_target: PROJECT_DEFAULTS.build_target,
  build_args: {},
  submodules: PROJECT_DEFAULTS.submodules,
  git_lfs: PROJECT_DEFAULTS.git_lfs,
  requires: {},
  watch_paths: [],
  volumes: [],
});
