import { PROJECT_DEFAULTS } from '@berth/wire/project';
import type { DeploymentRecord, EventRecord, Failure } from '../../domain/records.ts';
import type { NewRow, Row } from '../tables.ts';

type Settings = DeploymentRecord['settings'];
type OldSettings = Omit<Settings, 'on_dataset_change'> & Partial<Pick<Settings, 'on_dataset_change'>>;

/** Only what is given: a change stays a change. */
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
  ...plain
}: Partial<DeploymentRecord>): Partial<NewRow<'deployments'>> {
  return {
    ...plain,
    ...(settings === undefined ? {} : { settings: JSON.stringify(settings), domain_prefix: settings.domain_prefix }),
    ...(error === undefined ? {} : { error_code: error?.code ?? null, error_message: error?.message ?? null }),
    ...(placement === undefined ? {} : { placement: placement === null ? null : JSON.stringify(placement) }),
    ...(health === undefined
      ? {}
      : { health_status: health?.status ?? null, health_since: health?.since ?? null, health_detail: health?.detail ?? null }),
    ...(losses === undefined ? {} : { losses: JSON.stringify(losses) }),
    ...(datasets === undefined ? {} : { datasets: datasets === null ? null : JSON.stringify(datasets) }),
    ...(timer === undefined ? {} : { timer: timer === null ? null : JSON.stringify(timer) }),
    ...(retry === undefined ? {} : { retry: retry === null ? null : JSON.stringify(retry) }),
  };
}

export function deploymentOf(row: Row<'deployments'>): DeploymentRecord {
  const {
    settings,
    domain_prefix: _copy,
    error_code,
    error_message,
    placement,
    health_status,
    health_since,
    health_detail,
    losses,
    datasets,
    timer,
    retry,
    ordinal,
    thinned_at: _thinned,
    ...plain
  } = row;
  return {
    ...plain,
    // Those of a version before datasets say nothing of them.
    settings: { on_dataset_change: PROJECT_DEFAULTS.on_dataset_change, ...(JSON.parse(settings) as OldSettings) },
    error: error_code === null ? null : { code: error_code as Failure['code'], message: error_message ?? '' },
    placement: placement === null ? null : (JSON.parse(placement) as DeploymentRecord['placement']),
    health: health_status === null ? null : { status: health_status, since: health_since ?? 0, detail: health_detail },
    losses: JSON.parse(losses) as DeploymentRecord['losses'],
    datasets: datasets === null ? null : (JSON.parse(datasets) as DeploymentRecord['datasets']),
    timer: timer === null ? null : (JSON.parse(timer) as DeploymentRecord['timer']),
    retry: retry === null ? null : (JSON.parse(retry) as DeploymentRecord['retry']),
    ordinal: ordinal ?? plain.created_at,
  };
}

export const eventOf = ({ at, kind, message }: Row<'deployment_events'>): EventRecord => ({ at, kind, message });
