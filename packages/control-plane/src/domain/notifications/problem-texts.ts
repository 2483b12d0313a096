/**
 * Turns facts into observations of problems, with texts for people: what happened, to which thing,
 * and what to do. Pure.
 */
import { FAILURES, isFailureCode } from '@berth/wire/errors';
import { type CleanUpRecord, MOST_MISSING } from '../deployments/clean-up.ts';
import type { HostCertificate } from '../routes/configuration.ts';
import type { DatasetFact } from '../deployments/facts.ts';
import type { SilentNode } from '../nodes/failover.ts';
import type { LostNode, Observation, ProjectStanding, Seen } from './problems.ts';
import type { NodeRecord } from '../platform/records.ts';
import type { FailingRun } from '../runs/job-store.ts';
import type { VolumeCopy } from '../data/volume-copy.ts';

const MAX_DETAIL = 500;
const NAMED_PROJECTS = 5;
/** Free fraction of a disk below which the problem begins, and from which it ends. */
const DISK_FULL = { begins: 0.1, ends: 0.12 };

const clip = (text: string | null): string | null => {
  const line = text?.replaceAll(/\p{Cc}+/gu, ' ').trim() ?? '';
  if (line === '') return null;
  return line.length <= MAX_DETAIL ? line : `${line.slice(0, MAX_DETAIL - 1).toWellFormed()}…`;
};
const gone = (
  kind: Observation['kind'],
  subject: string,
  title: string,
  project_ids: string[] = [],
): Observation => ({
  kind,
  subject,
  at: null,
  isProblem: false,
  seen: { title, detail: null, advice: null, path: null, project_ids },
});

export function ofProject({
  id,
  name,
  newest,
  running,
  failing = null,
}: ProjectStanding): Observation[] {
  const observations: Observation[] = [];
  const path = `/projects/${id}`;
  const [project_ids, at] = [[id], null];
  if (newest === null)
    observations.push(gone('failed', id, `${name} has no failed deployment any more`, project_ids));
  else if (newest.status === 'failed') {
    const why =
      newest.error_code !== null && isFailureCode(newest.error_code)
        ? `: ${FAILURES[newest.error_code]}`
        : '';
    const notice = {
      title: `Deployment ${newest.generation} of ${name} failed${why}`,
      detail: clip(newest.error_message),
      advice:
        'Read the log of the deployment, correct the cause and deploy ' +
        `again.${running === null ? '' : ' The earlier version still runs.'}`,
      path: `/deployments/${newest.id}`,
      project_ids,
    };
    observations.push({ kind: 'failed', subject: id, at, isProblem: true, seen: notice });
  } else
    observations.push({
      ...gone('failed', id, `Deployment ${newest.generation} of ${name} is live`, project_ids),
    });

  if (failing !== null && running?.health !== 'unhealthy')
    observations.push(failingObservation(failing, { id, name, path, project_ids }));
  else if (running === null)
    observations.push(
      gone('unhealthy', id, `The unhealthy version of ${name} does not run any more`, project_ids),
    );
  else if (running.health === 'unhealthy') {
    const advice =
      'Read the log of its container. Deploy a correction, or roll back to an earlier deployment.';
    observations.push({
      kind: 'unhealthy',
      subject: id,
      at,
      isProblem: true,
      seen: {
        title: `${name} is unhealthy`,
        detail: clip(running.detail),
        advice,
        path,
        project_ids,
      },
    });
  } else if (running.health === 'degraded')
    // End the problem: the project answers requests. Another notification, of the lost node, says
    // why instances are missing.
    observations.push(
      gone(
        'unhealthy',
        id,
        `${name} answers again: ${clip(running.detail) ?? 'degraded'}`,
        project_ids,
      ),
    );
  else if (running.health === 'healthy' || running.health === 'drifted')
    observations.push(gone('unhealthy', id, `${name} is healthy`, project_ids));
  return observations;
}

type Of = { id: string; name: string; path: string; project_ids: string[] };

/** Observes a process that restarts again and again, or that does not run. */
function failingObservation(
  { process, number, detail }: NonNullable<ProjectStanding['failing']>,
  { id, name, path, project_ids }: Of,
): Observation {
  return {
    kind: 'unhealthy',
    subject: id,
    at: null,
    isProblem: true,
    seen: {
      title: `${process} ${number} of ${name} is unhealthy`,
      detail: clip(detail),
      advice: `Read its log: berth logs ${name} --process ${process}. Then deploy a correction.`,
      path,
      project_ids,
    },
  };
}

const minuteOf = (ms: number): string => new Date(ms).toISOString().slice(0, 16).replace('T', ' ');

type Node = Pick<NodeRecord, 'id' | 'hostname' | 'role' | 'disk' | 'last_seen_at' | 'deleting_at'>;
type Named = { id: string; name: string };

/**
 * Returns the observations of a node. `isOnline`: null while no control plane has served long
 * enough to know it.
 */
export function ofNode(
  node: Node,
  isOnline: boolean | null,
  projects: readonly Named[],
): Observation[] {
  const observations: Observation[] = [];
  const { id, hostname } = node;
  const path = `/nodes/${id}`;
  const project_ids = projects.map((project) => project.id);
  const isBuilder = node.role === 'builder';
  const its = `${isBuilder ? 'Builder' : 'Node'} ${hostname}`;
  const [at, isProblem] = [null, true];
  if (isOnline === true || node.deleting_at !== null)
    observations.push(gone('node_offline', id, `${its} is online`, project_ids));
  else if (isOnline === false) {
    const since = `It has not reported since ${minuteOf(node.last_seen_at)} UTC.`;
    const notice = {
      title: `${its} is offline`,
      detail: since,
      advice:
        "Check the machine, its network and the agent (systemctl status 'berth-agent*'). " +
        (isBuilder
          ? 'If it never comes back: berth node delete --force.'
          : 'If it never comes back, move its projects, then delete it (docs/disasters.md, “A ' +
            'node is gone”).'),
      path,
      project_ids,
      runs: [...projects],
    };
    observations.push({ kind: 'node_offline', subject: id, at, isProblem, seen: notice });
  }
  // The disk figures of a silent node are outdated.
  if (node.disk === null || isOnline !== true) return observations;
  observations.push(
    ...ofDisk(
      id,
      `The disk of ${isBuilder ? 'builder' : 'node'} ${hostname}`,
      node.disk,
      path,
      project_ids,
    ),
  );
  return observations;
}

/** Returns the observation of a lost node: one message for all its projects. */
export function ofLostNode({ id, hostname, projects }: LostNode): Observation {
  const notice = {
    title: `Node ${hostname ?? id} is lost: its instances start on other nodes`,
    detail: 'Its agent is silent.',
    advice:
      'Check the machine and its network. When it returns, Berth removes what other nodes ' +
      'replaced. Projects that write wait for it (docs/high-availability.md).',
    path: `/nodes/${id}`,
    project_ids: projects.map((project) => project.id),
    runs: projects,
    runs_text: 'Projects',
  };
  return { kind: 'failover', subject: id, at: null, isProblem: true, seen: notice };
}

const BRAKE = 'brake';
/** Returns the observation of the brake. `held`: the silent nodes that it holds. */
export function ofBrake(held: readonly Pick<SilentNode, 'hostname'>[]): Observation {
  if (held.length === 0) return gone('failover', BRAKE, 'Most nodes are heard again');
  const names = held.slice(0, NAMED_PROJECTS).map(({ hostname }) => hostname);
  const more = held.length - names.length;
  const notice = {
    title: 'Most nodes are silent: is the network down?',
    detail: `Nothing moves from ${names.join(', ')}${more === 0 ? '' : ` and ${more} more`}.`,
    advice:
      'Check the network of the control plane. If a machine is really gone: berth failover NODE ' +
      '--now.',
    path: '/nodes',
    project_ids: [],
  };
  return { kind: 'failover', subject: BRAKE, at: null, isProblem: true, seen: notice };
}
export const isBrake = (subject: string): boolean => subject === BRAKE;

const VOLUMES = 'volumes:';
export const isVolumes = (subject: string): boolean => subject.startsWith(VOLUMES);
export const nodeOfVolumes = (subject: string): string => subject.slice(VOLUMES.length);
/**
 * Returns the observation of missing volumes. `missing`: copies that the reports of the node lack.
 */
export function ofVolumes(
  { id, hostname }: Pick<NodeRecord, 'id' | 'hostname'>,
  missing: readonly VolumeCopy[],
): Observation {
  if (missing.length === 0)
    return gone('disk', `${VOLUMES}${id}`, `Node ${hostname} has its volumes again`);
  const current = missing.filter(({ state }) => state === 'current');
  const since = Math.min(
    ...missing.map(({ missing_since }) => missing_since ?? Number.POSITIVE_INFINITY),
  );
  const notice = {
    title: `Node ${hostname} reports without volumes that it had`,
    detail: `They are missing since ${minuteOf(since)} UTC.`,
    advice:
      'Check that the disk with the volumes of the node is mounted, then restart its agent. A ' +
      'project does not start without its volumes. ' +
      'If the disk is lost, see docs/volumes.md.',
    path: `/nodes/${id}`,
    project_ids: current.map(({ project_id }) => project_id),
    runs: current.map(({ project_id, project }) => ({ id: project_id, name: project })),
  };
  return { kind: 'disk', subject: `${VOLUMES}${id}`, at: null, isProblem: true, seen: notice };
}

/**
 * Returns the observation of a disk, or none between the two limits: the problem then keeps its
 * state.
 */
export function ofDisk(
  subject: string,
  its: string,
  { free, total }: { free: number; total: number },
  path: string | null,
  project_ids: string[] = [],
  at: number | null = null,
): Observation[] {
  if (total <= 0) return [];
  const part = free / total;
  if (part >= DISK_FULL.ends)
    return [{ ...gone('disk', subject, `${its} has free space again`, project_ids), at }];
  if (part >= DISK_FULL.begins) return [];
  const notice = {
    title: `${its} is nearly full`,
    detail: `${gigabytes(free)} of ${gigabytes(total)} are free.`,
    advice:
      'Find out what uses the space, delete what nobody needs, or add a larger disk. A full ' +
      'disk makes deployments fail.',
    path,
    project_ids,
  };
  return [{ kind: 'disk', subject, at, isProblem: true, seen: notice }];
}
const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

function namesOf(projects: readonly Named[], text: string): string {
  if (projects.length === 0) return '';
  const named = projects.slice(0, NAMED_PROJECTS).map((project) => project.name);
  const more = projects.length - named.length;
  return ` ${text}: ${named.join(', ')}${more === 0 ? '' : ` and ${more} more`}.`;
}

/**
 * Returns the texts for a notification that is limited to these projects. Omits other projects,
 * because its readers must not see them. Empty: all projects.
 */
export function seenBy(
  projects: readonly string[],
  { runs = [], runs_text = 'Projects that run there', ...seen }: Seen,
): Seen {
  const isOurs = (id: string): boolean => projects.length === 0 || projects.includes(id);
  const detail = `${seen.detail ?? ''}${namesOf(
    runs.filter(({ id }) => isOurs(id)),
    runs_text,
  )}`.trim();
  return {
    ...seen,
    detail: detail === '' ? null : detail,
    project_ids: seen.project_ids.filter(isOurs),
  };
}

export function ofDataset(
  { id, name, status, problem }: DatasetFact,
  project_ids: string[],
): Observation[] {
  if (status === 'ok') return [gone('dataset', id, `Dataset ${name} is ok`, project_ids)];
  if (status === 'new') return [];
  const advice =
    status === 'unreachable'
      ? 'Check the shared storage and its mount on the control plane. Deployments keep the ' +
        'versions that their nodes have.'
      : 'Check whether somebody deleted files on the shared storage. Berth keeps the last good ' +
        'version until the files are back.';
  const notice = {
    title: `Dataset ${name} is ${status}`,
    detail: clip(problem),
    advice,
    path: `/datasets/${id}`,
    project_ids,
  };
  return [{ kind: 'dataset', subject: id, at: null, isProblem: true, seen: notice }];
}

export function ofCertificate(
  host: string,
  project_id: string | null,
  last: HostCertificate | null,
): Observation[] {
  if (last === null || last.state === 'pending') return [];
  const [at, project_ids] = [last.checked_at, project_id === null ? [] : [project_id]];
  if (last.problem === null)
    return [
      { ...gone('certificate', host, `The certificate of ${host} is in order`, project_ids), at },
    ];
  const notice = {
    title:
      last.state === 'expires_soon'
        ? `The certificate of ${host} ends soon`
        : `${host} has no valid certificate`,
    detail: clip(last.problem),
    advice:
      'Search the log of the proxy for the host: it says why the certificate was not issued or ' +
      'renewed.',
    path: project_id === null ? null : `/projects/${project_id}`,
    project_ids,
  };
  return [{ kind: 'certificate', subject: host, at, isProblem: true, seen: notice }];
}

/** Returns the observation of a job whose newest run has failed or was lost. */
export function ofJob({ id, project_id, project, job, error, ended_at }: FailingRun): Observation {
  const notice = {
    title: `Job ${job ?? ''} of ${project} failed`,
    detail: clip(error?.message ?? null),
    advice: `Read what it printed: berth runs logs ${id}. Start it again: berth job run ${job ?? ''}.`,
    path: `/projects/${project_id}`,
    project_ids: [project_id],
  };
  return {
    kind: 'job_failed',
    subject: jobSubject({ project_id, job }),
    at: ended_at,
    isProblem: true,
    seen: notice,
  };
}
export const jobSubject = ({ project_id, job }: Pick<FailingRun, 'project_id' | 'job'>): string =>
  `${project_id}/${job ?? ''}`;

/** Returns the observation that ends a problem whose subject no longer exists. */
export const ofNobody = (kind: Observation['kind'], subject: string): Observation => {
  const title = {
    failed: 'The project was deleted',
    unhealthy: 'The project was deleted',
    node_offline: 'The node was deleted',
    failover: 'The node is back, or was deleted',
    disk: 'The node was deleted',
    dataset: 'The dataset was deleted',
    certificate: `${subject} is not published any more`,
    job_failed: 'The job succeeds again, or was deleted',
  }[kind];
  return gone(kind, subject, title);
};

const OWN_DISK = 'control-plane:';
export const isOwnDisk = (subject: string): boolean => subject.startsWith(OWN_DISK);
export const diskObservations = (
  host: string,
  { free, size }: { free: number; size: number },
  now: number,
): Observation[] =>
  ofDisk(
    `${OWN_DISK}${host}`,
    `The disk of the control plane ${host}`,
    { free, total: size },
    null,
    [],
    now,
  );

const REGISTRY = 'registry:';
const LACKS_IMAGES: readonly string[] = [MOST_MISSING, 'registry_other'];
export const isRegistry = (subject: string): boolean => subject === REGISTRY;
/**
 * Returns the observation of missing images. `last`: the clean-up that ended last. Ignores failures
 * that are unrelated to missing images.
 */
export function ofRegistry(
  last: Pick<CleanUpRecord, 'state' | 'error_code' | 'error_message'> | null,
): Observation[] {
  if (last === null || (last.state === 'failed' && !LACKS_IMAGES.includes(last.error_code ?? '')))
    return [];
  if (last.state !== 'failed') return [gone('disk', REGISTRY, 'The registry has its images')];
  const notice = {
    title: 'The registry lacks most of its images',
    detail: clip(last.error_message),
    advice:
      'Check that the disk of the registry is mounted, and start a clean-up again. Berth ' +
      'marked no image as removed.',
    path: null,
    project_ids: [],
  };
  return [{ kind: 'disk', subject: REGISTRY, at: null, isProblem: true, seen: notice }];
}
