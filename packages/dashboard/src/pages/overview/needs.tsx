/** Rows of the table "Needs attention". */
import type { Dataset } from '@berth/wire/dataset';
import type { DeploymentItem } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import type { Node } from '@berth/wire/node';
import type { Project } from '@berth/wire/project';
import { sizeText } from '@berth/wire/size-text';
import type { ReactNode } from 'react';
import { DatasetLink, DeploymentLink, NodeLink } from '../../parts/links.tsx';
import { addressTakenText, brakeText, toRemoveText } from '../../parts/node-notes.ts';
import { DatasetStatus, DeploymentStatus, HealthStatus, NodeStatus } from '../../parts/states.tsx';
import { Status } from '../../ui/status.tsx';
import { PageLink } from '../../ui/text.tsx';

export type Need = {
  id: string;
  what: ReactNode;
  state: ReactNode;
  why: ReactNode;
  since: string | null;
};

type NeedSources = {
  /** Failed deployments that no newer deployment replaced, and unhealthy running deployments. */
  deployments: readonly DeploymentItem[];
  nodes: readonly Node[];
  datasets: readonly Dataset[];
  /** Projects that have a certificate problem. */
  projects: readonly Project[];
  projectName: (id: string) => string;
};
export const needsOf = (sources: NeedSources): Need[] => [
  ...failureNeeds(sources),
  ...healthNeeds(sources),
  ...nodeNeeds(sources.nodes),
  ...containerNeeds(sources.nodes),
  ...datasetNeeds(sources.datasets),
  ...certificateNeeds(sources.projects),
];

const failureNeeds = ({ deployments, projectName }: NeedSources): Need[] =>
  deployments
    .filter(({ status }) => status === 'failed')
    .map((item) => ({
      id: item.id,
      what: (
        <DeploymentLink id={item.id}>
          {projectName(item.project_id)}
          {`\u00A0#${item.generation}`}
        </DeploymentLink>
      ),
      state: <DeploymentStatus status="failed" />,
      why: errorSentence(item.error?.message ?? ''),
      since: item.finished_at,
    }));

const healthNeeds = ({ deployments, projectName }: NeedSources): Need[] =>
  deployments.flatMap(({ id, project_id, status, health }) =>
    status !== 'running' || health === null
      ? []
      : {
          id: `health ${id}`,
          what: <DeploymentLink id={id}>{projectName(project_id)}</DeploymentLink>,
          state: <HealthStatus health={health} />,
          why: health.detail ?? '',
          since: health.since ?? null,
        },
  );

/** Returns whether less than 10 % of the disk is free: then new builds and copies begin to fail. */
const isFull = (disk: Node['disk']): boolean =>
  disk !== null && disk.total > 0 && disk.free / disk.total < 0.1;

/** A silent node has a worse problem, and its last figures may be wrong. */
const isOnlineAndFull = (node: Node): boolean =>
  node.status === 'online' && !node.failover && isFull(node.disk);

const needsAttention = (node: Node): boolean =>
  node.status === 'offline' ||
  brakeText(node) !== null ||
  node.doubled !== null ||
  node.engine?.ok === false ||
  isFull(node.disk);

const nodeNeeds = (nodes: readonly Node[]): Need[] =>
  nodes.filter(needsAttention).map((node) => ({
    id: node.id,
    what: <NodeLink name={node.id}>{node.hostname}</NodeLink>,
    state: isOnlineAndFull(node) ? (
      <Status mark="warn">disk nearly full</Status>
    ) : (
      <NodeStatus node={node} />
    ),
    why: nodeReasons(node),
    since: isOnlineAndFull(node) ? null : node.last_seen_at,
  }));

/** Returns all problems of a node as text; a problem that needs a decision comes first. */
const nodeReasons = (node: Node): string =>
  [
    brakeText(node),
    addressTakenText(node),
    node.doubled === null ? null : 'another machine registers under this name',
    node.engine?.ok === false ? `container engine: ${node.engine.error ?? 'no answer'}` : null,
    isOnlineAndFull(node) && node.disk !== null
      ? `${sizeText(node.disk.free)} of ${sizeText(node.disk.total)} are free`
      : null,
  ]
    .filter((text) => text !== null)
    .join('; ');

/** Rows for containers that only a person can remove. */
const containerNeeds = (nodes: readonly Node[]): Need[] =>
  nodes.flatMap((node) => {
    const why = toRemoveText(node);
    if (why === null) return [];
    return {
      id: `unmanaged ${node.id}`,
      what: <NodeLink name={node.id}>{node.hostname}</NodeLink>,
      state: <Status mark="warn">left over</Status>,
      why,
      since: (node.unmanaged ?? []).map(({ since }) => since).toSorted()[0] ?? null,
    };
  });

const datasetNeeds = (datasets: readonly Dataset[]): Need[] =>
  datasets
    .filter(({ status }) => status === 'suspicious' || status === 'unreachable')
    .map((dataset) => ({
      id: dataset.id,
      what: <DatasetLink name={dataset.name} />,
      state: <DatasetStatus status={dataset.status} />,
      why: dataset.problem ?? '',
      since: dataset.last_scanned_at,
    }));

const certificateNeeds = (projects: readonly Project[]): Need[] =>
  projects.map(({ id, name, certificate }) => ({
    id: `certificate ${id}`,
    what: (
      <PageLink to="/projects/$name/$tab" params={{ name, tab: 'domains' }} size="sm">
        {name}
      </PageLink>
    ),
    state: <Status mark="warn">certificate</Status>,
    why: certificate?.problem ?? '',
    since: certificate?.checked_at ?? null,
  }));
