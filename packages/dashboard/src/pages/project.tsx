import type { Deployment, DeploymentItem } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import { isScaledToZero, type Project, restsAtZero, restWord } from '@berth/wire/project';
import { useNavigate, useParams, useRouterState } from '@tanstack/react-router';
import { lazy, Suspense, useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useProjectReasons } from '../parts/permissions.ts';
import { useApiQuery, useApiList } from '../api/queries.ts';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command } from '../parts/command.tsx';
import { countOf, servingPart } from '../parts/instance-text.ts';
import { commitText, Deployments, rolledBackText } from '../parts/deployments.tsx';
import { useLogStream } from '../parts/log-data.ts';
import { LogView } from '../parts/log-view.tsx';
import { dialogError, Problem } from '../parts/problem.tsx';
import { HealthStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { Button, Menu, type MenuItem } from '../ui/controls.tsx';
import { Tabs } from '../ui/data.tsx';
import { SkeletonLines, Note } from '../ui/feedback.tsx';
import { Column, Panel } from '../ui/layout.tsx';
import { Confirm } from '../ui/overlay.tsx';
import { Status } from '../ui/status.tsx';
import { OutLink, PageLink, Text } from '../ui/text.tsx';

const TABS = [
  ['deployments', 'Deployments'],
  ['logs', 'Logs'],
  ['metrics', 'Metrics'],
  ['jobs', 'Jobs'],
  ['runs', 'Runs'],
  ['console', 'Console'],
  ['env', 'Env and secrets'],
  ['data', 'Data'],
  ['domains', 'Domains'],
  ['hook', 'Hook'],
  ['members', 'Members'],
  ['settings', 'Settings'],
] as const;
// This panel loads the number field.
const Instances = lazy(async () => ({
  default: (await import('./project/instances.tsx')).Instances,
}));
/** Tabs that are loaded when a person opens them. */
const LAZY_TABS = {
  // This tab loads the chart library.
  metrics: lazy(async () => ({ default: (await import('./project/metrics.tsx')).Metrics })),
  jobs: lazy(async () => ({ default: (await import('./project/jobs.tsx')).Jobs })),
  runs: lazy(async () => ({ default: (await import('./project/runs.tsx')).ProjectRuns })),
  // This tab loads the terminal.
  console: lazy(async () => ({ default: (await import('./project/console.tsx')).Console })),
  env: lazy(async () => ({ default: (await import('./project/env.tsx')).Env })),
  data: lazy(async () => ({ default: (await import('./project/data.tsx')).Data })),
  domains: lazy(async () => ({ default: (await import('./project/domains.tsx')).Domains })),
  hook: lazy(async () => ({ default: (await import('./project/hook.tsx')).Hook })),
  members: lazy(async () => ({ default: (await import('./project/members.tsx')).Members })),
  settings: lazy(async () => ({ default: (await import('./project/settings.tsx')).Settings })),
};

export const ProjectPage = () => {
  const { name, tab = 'deployments' } = useParams({ strict: false }) as {
    name: string;
    tab?: string;
  };
  const project = useApiQuery('getProject', { params: { id: name } });
  return (
    <QueryBoundary query={project} what="the project" page>
      {/* The key: each project gets a new form, without the text of another project. */}
      {(answer) => <LoadedProject key={answer.id} project={answer} tab={tab} />}
    </QueryBoundary>
  );
};

function LoadedProject({ project, tab }: { project: Project; tab: string }) {
  const deployments = useApiList('projectDeployments', {
    params: { id: project.id },
    query: { limit: 50 },
  });
  const hasOlderRelease = deployments.items.some(({ status }) => status === 'retired');
  const { actions, error } = useProjectActions(project, hasOlderRelease);
  return (
    <PageLayout
      title={project.name}
      lead={<ProjectLead project={project} newest={deployments.items[0]} />}
      actions={actions}
    >
      {error !== null && error !== undefined ? (
        <Problem error={error} what="The action" />
      ) : (
        <NotDeployedNote />
      )}
      <Tabs
        label="Parts of the project"
        tabs={TABS.map(([key, label]) =>
          key === 'deployments'
            ? { label, to: '/projects/$name', params: { name: project.name } }
            : { label, to: '/projects/$name/$tab', params: { name: project.name, tab: key } },
        )}
      />
      <TabBody project={project} tab={tab} deployments={deployments} />
    </PageLayout>
  );
}

/** Says why the first deployment of a new project did not begin. */
function NotDeployedNote() {
  const notDeployed = useRouterState({ select: ({ location }) => location.state.notDeployed });
  if (notDeployed === undefined) return null;
  return (
    <Note tone="bad" title="The project was created, but its first deployment did not begin" live>
      {notDeployed}
    </Note>
  );
}

/** Returns the buttons of the project, and the error of the last action. */
function useProjectActions(project: Project, hasOlderRelease: boolean) {
  const navigate = useNavigate();
  const reasonAgainst = useProjectReasons(project);
  const [isStopping, setIsStopping] = useState(false);
  const open = (deployment: Deployment): void =>
    void navigate({ to: '/deployments/$id', params: { id: deployment.id } });
  const deploy = useApiMutation('createDeployment', open);
  const restart = useApiMutation('restartProject', open);
  const start = useApiMutation('startProject', open);
  const rollback = useApiMutation('rollback', open);
  const params = { id: project.id };
  const menu: MenuItem[] = [
    {
      label: 'Restart',
      reason: reasonAgainst('restart'),
      onClick: () => void restart.run({ params }),
    },
    {
      label: 'Roll back to the release before',
      reason: reasonAgainst('deploy') ?? (hasOlderRelease ? null : 'no older release ran'),
      onClick: () => void rollback.run({ params, body: {} }),
    },
    {
      label: 'Stop',
      danger: true,
      reason: reasonAgainst('stop') ?? (project.stopped_by_person ? 'it is stopped already' : null),
      onClick: () => setIsStopping(true),
    },
  ];
  const actions = (
    <>
      {project.url !== null && <OutLink href={project.url}>Open</OutLink>}
      {project.stopped && !restsAtZero(project) && (
        <Button
          reason={reasonAgainst('start')}
          busy={start.busy}
          onClick={() => void start.run({ params })}
        >
          Start
        </Button>
      )}
      <Button
        look="main"
        reason={reasonAgainst('deploy')}
        busy={deploy.busy}
        onClick={() => void deploy.run({ params, body: {} })}
      >
        Deploy
      </Button>
      <Menu label="More actions" items={menu} />
      <StopDialog project={project} open={isStopping} onClose={() => setIsStopping(false)} />
    </>
  );
  return { actions, error: errorOfLast(deploy, restart, start, rollback) };
}

type StopDialogProps = { project: Project; open: boolean; onClose: () => void };
function StopDialog({ project, open, onClose }: StopDialogProps) {
  const stop = useApiMutation('stopProject', onClose);
  return (
    <Confirm
      open={open}
      onClose={() => {
        onClose();
        stop.reset();
      }}
      title={`Stop ${project.name}?`}
      action="Stop"
      danger
      busy={stop.busy}
      error={dialogError(stop.error)}
      onConfirm={() => void stop.run({ params: { id: project.id } })}
    >
      <Text>
        Its container stops after its running requests. Its address then answers 503 with a page.
        Route, node, image and data stay reserved.
      </Text>
    </Confirm>
  );
}

type ProjectLeadProps = { project: Project; newest: DeploymentItem | undefined };
/** Says in one sentence whether the project serves, and which version. */
function ProjectLead({ project, newest }: ProjectLeadProps) {
  const id = project.running_deployment_id;
  const { data: running } = useApiQuery(
    'getDeployment',
    { params: { id: id ?? '' } },
    { enabled: id !== null },
  );
  if (project.deleting) return <Status mark="busy">is being deleted</Status>;
  if (project.stopped)
    return <Status mark="off">{restText(project)}. Its address answers 503 with a page.</Status>;
  if (id !== null)
    return running === undefined ? (
      <SkeletonLines lines={1} />
    ) : (
      <RunningLead project={project} deployment={running} />
    );
  if (newest?.status === 'failed')
    return (
      <Status mark="bad">
        Not live: the last deployment failed. {errorSentence(newest.error?.message ?? '')}
      </Status>
    );
  return <Status mark="off">Not live yet.</Status>;
}

function restText(project: Project): string {
  if (restsAtZero(project)) return 'Scaled to 0';
  return isScaledToZero(project) ? 'Stopped, and scaled to 0' : 'Stopped';
}

/** Shows the commit, node, data and time of the running version. */
type RunningLeadProps = { project: Project; deployment: Deployment };
function RunningLead({ project, deployment }: RunningLeadProps) {
  const { health, node_id, node_name, datasets, instances } = deployment;
  const serving = project.url === null ? null : servingPart(instances, countOf(project));
  // `degraded` has the count as its detail, which the sentence has already.
  const isTold = health?.status === 'degraded' && serving !== null;
  return (
    <span>
      {health === null ? <Status mark="ok">running</Status> : <HealthStatus health={health} />}
      {project.url === null ? ': runs' : ': serves'} <strong>{commitText(deployment)}</strong>
      {serving !== null && ` from ${serving}, the first one on`}
      {node_id !== null && (
        <>
          {serving === null ? ' from ' : ' '}
          <PageLink to="/nodes/$name" params={{ name: node_id }}>
            {node_name ?? node_id}
          </PageLink>
        </>
      )}
      {datasets.length > 0 && ' on '}
      {datasets.map((dataset, index) => (
        <DatasetUse key={dataset.dataset_id} dataset={dataset} isFirst={index === 0} />
      ))}
      {', deployed '}
      <Ago at={deployment.finished_at ?? deployment.created_at} />
      {rolledBackText(deployment)}
      {health !== null && health.status !== 'healthy' && !isTold && (health.detail ?? null) !== null
        ? `. ${health.detail}`
        : ''}
    </span>
  );
}

type DatasetUseProps = { dataset: Deployment['datasets'][number]; isFirst: boolean };
const DatasetUse = ({ dataset, isFirst }: DatasetUseProps) => (
  <span>
    {!isFirst && ', '}
    <PageLink to="/datasets/$name" params={{ name: dataset.name }}>
      {dataset.name}
    </PageLink>{' '}
    {dataset.version === null ? '(shared, writable)' : `version ${dataset.version}`}
    {dataset.moved_on && ` (newest: ${dataset.current_version ?? '?'})`}
  </span>
);

function TabBody({
  project,
  tab,
  deployments,
}: {
  project: Project;
  tab: string;
  deployments: {
    items: readonly DeploymentItem[];
    more: (() => void) | null;
    query: { data: unknown; error: unknown; refetch: () => unknown };
  };
}) {
  if (tab === 'logs') return <Logs project={project} />;
  const Tab = Object.hasOwn(LAZY_TABS, tab) ? LAZY_TABS[tab as keyof typeof LAZY_TABS] : null;
  if (Tab !== null)
    return (
      <Suspense fallback={<SkeletonLines />}>
        <Tab project={project} />
      </Suspense>
    );
  return (
    <Column>
      <Suspense fallback={<SkeletonLines />}>
        <Instances project={project} />
      </Suspense>
      <Panel
        flush
        title="Deployments"
        id="deployments"
        actions={<Command words={['status', project.name]} />}
      >
        <QueryBoundary query={deployments.query} what="the deployments">
          {() => (
            <Deployments
              items={deployments.items}
              more={deployments.more}
              stopped={project.stopped}
              label={`Deployments of ${project.name}`}
              empty={['deploy', '--project', project.name]}
            />
          )}
        </QueryBoundary>
      </Panel>
    </Column>
  );
}

const TAIL = 1_000;
function Logs({ project }: { project: Project }) {
  const { lines, notes } = useLogStream(`/api/projects/${project.id}/logs?tail=${TAIL}`);
  return (
    <Column>
      <Panel
        flush
        title="Runtime logs"
        id="logs"
        actions={<Command words={['logs', project.name, '-f']} />}
      >
        <LogView
          lines={lines}
          notes={notes}
          label={`Log of ${project.name}`}
          follow
          linkable
          file={`${project.name}.log`}
        />
      </Panel>
      {project.stopped && (
        <Text tone="quiet">
          The project is {restWord(project)}. The last lines of its containers are at the
          deployment.
        </Text>
      )}
    </Column>
  );
}
