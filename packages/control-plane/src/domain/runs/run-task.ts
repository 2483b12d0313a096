/** Decides where a run is executed, and builds its task. Pure. */
import { defined } from '@berth/kit/defined';
import type { DatasetMount } from '@berth/wire/dataset';
import { CAN_RUN_DEVICES } from '@berth/wire/machine';
import { CAN_RUN, CAN_RUN_INPUT, type RunPayload } from '@berth/wire/run-payload';
import { wantedOf } from '../data/mounts.ts';
import type { VolumeCopy } from '../data/volume-copy.ts';
import { currentCopy, volumeHome, volumeMounts, volumeNeeds } from '../data/volumes.ts';
import { imageOf } from '../deployments/clean-up.ts';
import type { DatasetFact } from '../deployments/facts.ts';
import { limitNeeds, type Need } from '../nodes/build-needs.ts';
import type { Question } from '../nodes/placement.ts';
import { deviceIds, type DeviceTake, type Holder, machineNeeds, type Room } from '../nodes/room.ts';
import type { DatasetVersionRecord, DeploymentRecord, ProjectRecord } from '../platform/records.ts';
import type { SecretRecord } from '../secrets/secrets.ts';
import type { RunRecord } from './run-store.ts';

/** The data that a decision about a run reads. `deployment`: the version that serves. */
export type RunFacts = {
  project: Pick<ProjectRecord, 'id' | 'name'>;
  deployment: DeploymentRecord;
  /** The datasets of the project, each with the version that the deployment has. */
  datasets: readonly DatasetFact[];
  volumes: readonly VolumeCopy[];
  secrets: readonly SecretRecord[];
  room: Room;
};

export const runNeed: Need = {
  capability: CAN_RUN,
  what: 'run a command in a container of its own',
  because: 'is of an earlier version',
};

export const runInputNeed: Need = {
  capability: CAN_RUN_INPUT,
  what: 'pass on standard input',
  because: 'is of an earlier version',
};

const kindsOf = ({ devices }: Pick<RunRecord, 'devices'>): string[] => Object.keys(devices ?? {});

const deviceNeed = (run: RunRecord): Need[] =>
  kindsOf(run).length === 0
    ? []
    : [
        {
          capability: CAN_RUN_DEVICES,
          what: `pass ${kindsOf(run).join(' and ')} to the container of a command`,
          because: 'is of an earlier version',
        },
      ];

/** A run is the holder of its devices: an attempt on the same node takes them over. */
export const holderOfRun = ({ id }: Pick<RunRecord, 'id'>): Holder => ({
  deployment_id: id,
  instance_id: null,
});

type Limited = Pick<RunRecord, 'memory_bytes' | 'cpus'>;

/** Returns the limits of the run: its own ones, else those of the release. */
export const limitsOfRun = (run: Limited, { settings }: DeploymentRecord): Limited => ({
  memory_bytes: run.memory_bytes ?? settings.memory_bytes,
  cpus: run.cpus ?? settings.cpus,
});

/**
 * Returns the datasets with the versions that the deployment has pinned, so that a run sees the
 * same data as the version that serves.
 */
export function pinnedDatasets(
  { datasets: pins }: Pick<DeploymentRecord, 'datasets'>,
  datasets: readonly DatasetFact[],
  versions: readonly DatasetVersionRecord[],
): DatasetFact[] {
  return datasets.map((dataset) => {
    const pin = pins?.find(({ dataset_id }) => dataset_id === dataset.id)?.version ?? null;
    const pinned = versions.find((v) => v.dataset_id === dataset.id && v.version === pin);
    if (pinned === undefined) return dataset;
    const { version, manifest_digest, bytes, files } = pinned;
    return { ...dataset, version, manifest_digest, bytes, files };
  });
}

/** The question to placement: the node with the data wins, as for a deployment. */
export function questionOfRun(
  run: RunRecord,
  { deployment, datasets, volumes, room }: RunFacts,
  secretNeeds: readonly Need[],
): Question {
  const { settings } = deployment;
  const limits = limitsOfRun(run, deployment);
  // The devices of the project belong to its instances.
  const requires = defined({ ...settings.requires, devices: run.devices ?? undefined });
  return {
    wanted: wantedOf(settings.datasets, datasets),
    losses: run.losses,
    runsOn: deployment.node_id,
    stays: false,
    arch: deployment.image_arch,
    needs: [
      runNeed,
      ...(run.stdin ? [runInputNeed] : []),
      ...deviceNeed(run),
      ...secretNeeds,
      ...volumeNeeds(settings),
      ...limitNeeds({ memory_bytes: limits.memory_bytes, cpus: limits.cpus }),
    ],
    home: settings.volumes.length === 0 ? null : volumeHome(volumes),
    machine: machineNeeds({ memory_bytes: limits.memory_bytes, requires }, room, {
      own: holderOfRun(run),
      freed: [],
    }),
  };
}

/** Returns the payload of the run's task. The env of the request wins over that of the release. */
export function runPayload(
  run: RunRecord,
  { project, deployment, volumes, secrets }: RunFacts,
  {
    mounts,
    registryAddr,
    takes,
  }: { mounts: readonly DatasetMount[]; registryAddr: string; takes: readonly DeviceTake[] },
): RunPayload {
  const { settings, image_digest } = deployment;
  const copy = settings.volumes.length === 0 ? null : currentCopy(volumes);
  const names = secrets
    .filter(({ scope, name }) => scope === 'run' && !Object.hasOwn(run.env, name))
    .map(({ name, as }) => ({ name, as }));
  return {
    run_id: run.id,
    project_id: project.id,
    project: project.name,
    image: imageOf(deployment, registryAddr),
    image_tag: deployment.image_tag ?? '',
    image_digest,
    container_name: `run-${project.name}-${run.id.slice(0, 8)}`,
    command: run.command,
    env: { ...settings.env, ...run.env },
    ...defined({ secrets: names.length === 0 ? undefined : names }),
    datasets: [...mounts],
    ...defined({ volumes: copy === null ? undefined : volumeMounts(settings, copy) }),
    ...limitsOfRun(run, deployment),
    ...defined({
      devices: takes.length === 0 ? undefined : deviceIds(takes),
      stdin: run.stdin ? true : undefined,
    }),
    timeout_seconds: run.timeout_seconds,
    stop_grace_seconds: settings.stop_grace_seconds,
  };
}
