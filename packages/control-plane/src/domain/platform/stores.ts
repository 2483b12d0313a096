/** Every store. It goes: each route and loop names the stores that it uses. */
import type { DatasetStore } from '../data/dataset-stores.ts';
import type { VolumeStore } from '../data/volume-store.ts';
import type { CleanUpStore } from '../deployments/clean-up.ts';
import type { DeploymentStore } from '../deployments/deployment-store.ts';
import type { FlowStore } from '../deployments/flow-store.ts';
import type { LogStore } from '../deployments/log-store.ts';
import type { RetentionStore } from '../deployments/retention.ts';
import type { ExitStore, LogRelay, LogWantStore } from '../deployments/runtime-logs.ts';
import type { TaskStore } from '../deployments/task-store.ts';
import type { StatusStore } from '../git/commit-statuses.ts';
import type { DeployKeyStore, GitHostStore, GitTokenStore } from '../git/git-stores.ts';
import type { HookStore } from '../git/hooks.ts';
import type { RepositoryLookStore } from '../git/repository-looks.ts';
import type {
  ApiSessionStore,
  ApiTokenStore,
  AuditStore,
  DeviceCodeStore,
  DeviceTokenStore,
  IdempotencyAnswerStore,
  PolicyStore,
  RevokedSessionStore,
  UsedCodeStore,
} from '../identity/identity-stores.ts';
import type { UserStore } from '../identity/user-store.ts';
import type { AdmissionStore, JoinTokenStore } from '../nodes/join-stores.ts';
import type { NodeStore } from '../nodes/node-store.ts';
import type { UnmanagedStore } from '../nodes/unmanaged-store.ts';
import type { UsageStore } from '../nodes/usage.ts';
import type { NotificationStore } from '../notifications/notifications.ts';
import type { ProblemStore } from '../notifications/problems.ts';
import type { ProjectStore } from '../projects/project-store.ts';
import type { DomainStore, RouteStore } from '../routes/route-stores.ts';
import type { SecretStore } from '../secrets/secrets.ts';
import type { ProjectKeyStore } from '../secrets/vault.ts';
import type { BackupStore } from './backups.ts';
import type { Notifier } from './changes.ts';
import type { EventStore } from './event-store.ts';
import type { MetaStore } from './meta-store.ts';
import type { MetricsStore } from './metrics-store.ts';
import type { UptimeStore } from './uptime.ts';

export type Stores = {
  projects: ProjectStore;
  projectKeys: ProjectKeyStore;
  secrets: SecretStore;
  volumes: VolumeStore;
  unmanaged: UnmanagedStore;
  deployKeys: DeployKeyStore;
  gitTokens: GitTokenStore;
  gitHosts: GitHostStore;
  deployments: DeploymentStore;
  flow: FlowStore;
  tasks: TaskStore;
  logs: LogStore;
  logWants: LogWantStore;
  exits: ExitStore;
  nodes: NodeStore;
  joinTokens: JoinTokenStore;
  admissions: AdmissionStore;
  datasets: DatasetStore;
  routes: RouteStore;
  domains: DomainStore;
  users: UserStore;
  apiSessions: ApiSessionStore;
  apiTokens: ApiTokenStore;
  revokedSessions: RevokedSessionStore;
  usedCodes: UsedCodeStore;
  deviceCodes: DeviceCodeStore;
  deviceTokens: DeviceTokenStore;
  audit: AuditStore;
  idempotencyAnswers: IdempotencyAnswerStore;
  events: EventStore;
  hooks: HookStore;
  commitStatuses: StatusStore;
  problems: ProblemStore;
  notifications: NotificationStore;
  /** The name of the newest migration. */
  schema: string;
  policy: PolicyStore;
  backups: BackupStore;
  cleanUps: CleanUpStore;
  repositoryLooks: RepositoryLookStore;
  meta: MetaStore;
  uptime: UptimeStore;
  usage: UsageStore;
  retention: RetentionStore;
  metrics: MetricsStore;
  /**
   * Carries notifications to other control planes on the same database; null if there can be only
   * one.
   */
  notifier: Notifier | null;
  /** Carries lines of runtime logs to other control planes; null if there can be only one. */
  logRelay: LogRelay | null;
  /** Runs a trivial query, for /readyz. */
  ping(): Promise<void>;
  close(): Promise<void>;
};
