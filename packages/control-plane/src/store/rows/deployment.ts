import { webSettings } from '../../domain/projects/processes.ts';
import { defined } from '@berth/kit/defined';
import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { HealthCause } from '@berth/wire/vocabulary';
import type {
  DeploymentRecord,
  DeploymentSummary,
  EventRecord,
} from '../../domain/platform/records.ts';
import type { FailureColumns, HealthColumns, NewRow, Row } from '../engine/tables.ts';
import { encodeColumns, type Encoded, decodeRow } from './columns.ts';
import { storedSettings } from './project.ts';

type Settings = DeploymentRecord['settings'];
/** Settings that older versions did not have. */
type Later =
  | 'on_dataset_change'
  | 'data_copies'
  | 'deploy_on_push'
  | 'watch_paths'
  | 'volumes'
  | 'start_seconds'
  | 'build_context'
  | 'build_target'
  | 'build_args'
  | 'submodules'
  | 'requires'
  | 'release_command'
  | 'release_timeout_seconds'
  | 'git_lfs'
  | 'processes'
  | 'settle_seconds'
  | 'spread'
  | 'sticky'
  | 'allow_exec'
  | 'exec_role'
  | 'on_node_lost';
type OldSettings = Omit<Settings, Later> & Partial<Pick<Settings, Later>>;

/** Returns columns for the given fields only. */
export function deploymentColumns<T extends Partial<DeploymentRecord>>(
  record: T,
): T extends DeploymentRecord ? NewRow<'deployments'> : Partial<NewRow<'deployments'>>;
export function deploymentColumns({
  error,
  health,
  image_missing: _missing,
  ...plain
}: Partial<DeploymentRecord>): Partial<NewRow<'deployments'>> {
  return {
    ...encodeColumns(plain),
    ...errorColumns(error),
    ...healthColumns(health),
    ...defined({
      domain_prefix: plain.settings?.domain_prefix,
      memory_bytes:
        plain.settings === undefined ? undefined : webSettings(plain.settings).memory_bytes,
    }),
  };
}

const errorColumns = (error: DeploymentRecord['error'] | undefined): Partial<FailureColumns> =>
  error === undefined
    ? {}
    : { error_code: error?.code ?? null, error_message: error?.message ?? null };

const healthColumns = (health: DeploymentRecord['health'] | undefined): Partial<HealthColumns> =>
  health === undefined
    ? {}
    : {
        health_status: health?.status ?? null,
        health_since: health?.since ?? null,
        health_detail: health?.detail ?? null,
        health_cause:
          health?.cause === undefined
            ? null
            : JSON.stringify({ cause: health.cause, since: health.since } satisfies StoredCause),
      };

/**
 * The cause of a health. `since` is the time of that health: an older version of Berth writes the
 * health without its cause, and the stored cause is then outdated.
 */
type StoredCause = { cause: HealthCause; since: number };

function healthOf({
  health_status: status,
  health_since,
  health_detail: detail,
  health_cause,
}: HealthColumns): DeploymentRecord['health'] {
  if (status === null) return null;
  const since = health_since ?? 0;
  const stored = health_cause === null ? null : (JSON.parse(health_cause) as StoredCause);
  const cause = stored?.since === since ? stored.cause : undefined;
  return { status, since, detail, ...defined({ cause }) };
}

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
  'waiting_reason',
  'stopped_first',
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
  'health_cause',
  'datasets',
  'ordinal',
  'created_at',
  'finished_at',
  'log_removed_at',
  'story_removed_at',
] as const satisfies (keyof Row<'deployments'>)[];
type SummaryRow = Pick<Row<'deployments'>, (typeof SUMMARY_COLUMNS)[number]>;

const SUMMARY_ENCODED: Encoded<Omit<DeploymentSummary, 'error' | 'health'>> = {
  created_by: 'json',
  phases: 'json',
  rolled_back: 'json',
  datasets: 'json',
  waiting_reason: 'json',
};
type Plain = Omit<DeploymentRecord, 'settings' | 'error' | 'health' | 'ordinal' | 'image_missing'>;
const ENCODED: Encoded<Plain> = {
  ...SUMMARY_ENCODED,
  config: 'json',
  placement: 'json',
  losses: 'json',
  timer: 'json',
  retry: 'json',
  secrets: 'json',
};

export function summaryOf({ ordinal: _, ...row }: SummaryRow): DeploymentSummary {
  const { error, health, ...plain } = withParts(row);
  return { ...decodeRow(plain, SUMMARY_ENCODED), error, health };
}

export function deploymentOf(row: Row<'deployments'>): DeploymentRecord {
  const {
    settings,
    domain_prefix: _copy,
    memory_bytes: _memory,
    ordinal,
    thinned_at: _thinned,
    settings_digest: _digest,
    image_deleting: _deleting,
    image_missing,
    error,
    health,
    ...plain
  } = withParts(row);
  return {
    ...decodeRow<Plain>(plain, ENCODED),
    settings: settingsOf(settings),
    ...defined({ image_missing: image_missing === 1 ? true : undefined }),
    error,
    health,
    ordinal: ordinal ?? plain.created_at,
  };
}

/** Returns the settings of a deployment of any version. */
export const settingsOf = (settings: string): DeploymentRecord['settings'] => ({
  ...laterDefaults(),
  ...(storedSettings(settings) as OldSettings),
});

/** Replaces the columns of `error` and `health` with these two fields. */
const withParts = <T extends FailureColumns & HealthColumns>({
  error_code,
  error_message,
  health_status,
  health_since,
  health_detail,
  health_cause,
  ...plain
}: T): Omit<T, keyof (FailureColumns & HealthColumns)> &
  Pick<DeploymentRecord, 'error' | 'health'> => ({
  ...plain,
  error: error_code === null ? null : { code: error_code, message: error_message ?? '' },
  health: healthOf({ health_status, health_since, health_detail, health_cause }),
});

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
  data_copies: PROJECT_DEFAULTS.data_copies,
  deploy_on_push: PROJECT_DEFAULTS.deploy_on_push,
  start_seconds: PROJECT_DEFAULTS.start_seconds,
  build_context: PROJECT_DEFAULTS.build_context,
  build_target: PROJECT_DEFAULTS.build_target,
  build_args: {},
  submodules: PROJECT_DEFAULTS.submodules,
  git_lfs: PROJECT_DEFAULTS.git_lfs,
  requires: {},
  release_command: PROJECT_DEFAULTS.release_command,
  release_timeout_seconds: PROJECT_DEFAULTS.release_timeout_seconds,
  watch_paths: [],
  volumes: [],
  processes: [...PROJECT_DEFAULTS.processes],
  settle_seconds: PROJECT_DEFAULTS.settle_seconds,
  spread: PROJECT_DEFAULTS.spread,
  sticky: PROJECT_DEFAULTS.sticky,
  allow_exec: PROJECT_DEFAULTS.allow_exec,
  exec_role: PROJECT_DEFAULTS.exec_role,
  on_node_lost: PROJECT_DEFAULTS.on_node_lost,
});
