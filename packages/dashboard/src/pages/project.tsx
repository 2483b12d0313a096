import type { Deployment, DeploymentItem } from '@berth/wire/deployment';
import { errorSentence } from '@berth/wire/error-sentence';
import type { Project } from '@berth/wire/project';
import { useNavigate, useParams, useRouterState } from '@tanstack/react-router';
import { lazy, Suspense, useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { useProjectReasons } from '../parts/permissions.ts';
import { useApiQuery, useApiList } from '../api/queries.ts';
import { errorOfLast, useApiMutation } from '../api/mutations.ts';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { Command } from '../parts/command.tsx';
import { commitText, Deployments, rolledBackText } from '../parts/deployments.tsx';
import { useLogStream } from '../parts/log-data.ts';
import { LogView } from '../parts/log-view.tsx';
import { dialogError, Problem } from '../parts/problem.tsx';
import { HealthStatus } from '../parts/states.tsx';
import { Ago } from '../parts/time.tsx';
import { Button, Menu } from '../ui/controls.tsx';
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
  ['env', 'Env and secrets'],
  ['data', 'Data'],
  ['domains', 'Domains'],
  ['hook', 'Hook'],
  ['members', 'Members'],
  ['settings', 'Settings'],
] as const;
/** Tabs of which each one is loaded when a person opens it. */
const LAZY_TABS = {
  // Has the library for charts.
  metrics: lazy(async () => ({ default: (await import('./project/metrics.tsx')).Metrics })),
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
      {/* The key: a form of one project never has the texts of another one. */}
      {(found) => <Loaded key={found.id} project={found} tab={tab} />}
    </QueryBoundary>
  );
};

function Loaded({ project, tab }: { project: Project; tab: string }) {
  const navigate = useNavigate();
  const deployments = useApiList('projectDeployments', {
    params: { id: project.id },
    query: { limit: 50 },
  });
  const live = useApiQuery(
    'getDeployment',
    { params: { id: project.running_deployment_id ?? '' } },
    { enabled: project.running_deployment_id !== null },
  );
  const reasonAgainst = useProjectReasons(project);
  const [asking, setAsking] = useState<'stop' | null>(null);
  const open = (deployment: Deployment): void =>
    void navigate({ to: '/deployments/$id', params: { id: deployment.id } });
  const deploy = useApiMutation('createDeployment', open);
  const restart = useApiMutation('restartProject', open);
  const start = useApiMutation('startProject', open);
  const stop = useApiMutation('stopProject', () => setAsking(null));
  const rollback = useApiMutation('rollback', open);
  const params = { id: project.id };
  const notDeployed = useRouterState({ select: ({ location }) => location.state.notDeployed });
  const error = errorOfLast(deploy, restart, start, rollback);
  return (
    <PageLayout
      title={project.name}
      lead={
        <Truth
          project={project}
          live={project.running_deployment_id === null ? undefined : live.data}
          newest={deployments.items[0]}
        />
      }
      actions={
        <>
          <OutLink href={project.url}>Open</OutLink>
          {project.stopped && (
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
          <Menu
            label="More actions"
            items={[
              {
                label: 'Restart',
                reason: reasonAgainst('restart'),
                onClick: () => void restart.run({ params }),
              },
              {
                label: 'Roll back to the release before',
                reason:
                  reasonAgainst('deploy') ??
                  (deployments.items.some(({ status }) => status === 'retired')
                    ? null
                    : 'no older release ran'),
                onClick: () => void rollback.run({ params, body: {} }),
              },
              {
                label: 'Stop',
                danger: true,
                reason: reasonAgainst('stop') ?? (project.stopped ? 'it is stopped already' : null),
                onClick: () => setAsking('stop'),
              },
            ]}
          />
        </>
      }
    >
      {error !== null && error !== undefined ? (
        <Problem error={error} what="The action" />
      ) : (
        notDeployed !== undefined && (
          <Note
            tone="bad"
            title="The project was created, but its first deployment did not begin"
            live
          >
            {notDeployed}
          </Note>
        )
      )}
      <Tabs
        label="Parts of the project"
        tabs={TABS.map(([key, label]) =>
          key === 'deployments'
            ? { label, to: '/projects/$name', params: { name: project.name } }
            : { label, to: '/projects/$name/$tab', params: { name: project.name, tab: key } },
        )}
      />
      <Body project={project} tab={tab} deployments={deployments} />
      <Confirm
        open={asking === 'stop'}
        onClose={() => {
          setAsking(null);
          stop.reset();
        }}
        title={`Stop ${project.name}?`}
        action="Stop"
        danger
        busy={stop.busy}
        error={dialogError(stop.error)}
        onConfirm={() => void stop.run({ params })}
      >
        <Text>
          Its container stops after its running requests. Its address then answers 503 with a page.
          Route, node, image and data stay reserved.
        </Text>
      </Confirm>
    </PageLayout>
  );
}

/** One sentence: which commit, from which node, since when, on which data. */
function Truth({
  project,
  live,
  newest,
}: {
  project: Project;
  live: Deployment | undefined;
  newest: DeploymentItem | undefined;
}) {
  if (project.deleting) return <Status mark="busy">is being deleted</Status>;
  if (project.stopped)
    return <Status mark="off">Stopped. Its address answers 503 with a page.</Status>;
  if (live === undefined) {
    if (project.running_deployment_id !== null) return <SkeletonLines lines={1} />;
    return newest?.status === 'failed' ? (
      <Status mark="bad">
        Not live: the last deployment failed. {errorSentence(newest.error?.message ?? '')}
      </Status>
    ) : (
      <Status mark="off">Not live yet.</Status>
    );
  }
  return (
    <span>
      {live.health === null ? (
        <Status mark="ok">running</Status>
      ) : (
        <HealthStatus health={live.health} />
      )}
      : serves <strong>{commitText(live)}</strong>
      {live.node_id !== null && (
        <>
          {' from '}
          <PageLink to="/nodes/$name" params={{ name: live.node_id }}>
            {live.node_name ?? live.node_id}
          </PageLink>
        </>
      )}
      {live.datasets.length > 0 && (
        <>
          {' on '}
          {live.datasets.map((dataset, index) => (
            <span key={dataset.dataset_id}>
              {index > 0 && ', '}
              <PageLink to="/datasets/$name" params={{ name: dataset.name }}>
                {dataset.name}
              </PageLink>{' '}
              {dataset.version === null ? '(shared, writable)' : `version ${dataset.version}`}
              {dataset.moved_on && ` (newest: ${dataset.current_version ?? '?'})`}
            </span>
          ))}
        </>
      )}
      {', deployed '}
      <Ago at={live.finished_at ?? live.created_at} />
      {rolledBackText(live)}
      {live.health?.detail !== undefined &&
        live.health.detail !== null &&
        live.health.status !== 'healthy' &&
        `. ${live.health.detail}`}
    </span>
  );
}

function Body({
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
          The project is stopped. The last lines of its containers are at the deployment.
        </Text>
      )}
    </Column>
  );
}
