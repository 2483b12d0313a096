/** The routes of the dashboard. Each page is loaded when somebody opens it. */
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from '@tanstack/react-router';
import { ApiError } from '@berth/wire/client';
import { Problem } from '../parts/problem.tsx';
import { Waiting } from '../ui/feedback.tsx';
import { NotFound } from '../parts/not-found.tsx';
import { reportProblem } from '../api/connection.ts';
import { Shell } from './shell.tsx';

/** Converts search parameters to text. Each page reads only the parameters that it knows. */
const textSearch = (search: Record<string, unknown>): Record<string, string> =>
  Object.fromEntries(Object.entries(search).map(([key, value]) => [key, String(value)]));

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  validateSearch: textSearch,
});

/** Loads a module. A failure means `outdated`: an upgrade removes the files of the old page. */
async function load<M>(module: Promise<M>): Promise<M> {
  try {
    return await module;
  } catch (error) {
    reportProblem('outdated');
    throw error;
  }
}

/** Makes a route. `name`: the page component, which the module exports. */
const at = <P extends string, M extends Record<N, () => React.ReactNode>, N extends string>(
  path: P,
  module: () => Promise<M>,
  name: N,
) =>
  createRoute({
    getParentRoute: () => root,
    path,
    component: lazyRouteComponent(() => load(module()), name),
  });

const routes = [
  at('/', () => import('../pages/overview.tsx'), 'OverviewPage'),
  at('/projects', () => import('../pages/projects.tsx'), 'ProjectsPage'),
  at('/projects/new', () => import('../pages/new-project.tsx'), 'NewProjectPage'),
  at('/projects/$name', () => import('../pages/project.tsx'), 'ProjectPage'),
  at('/projects/$name/$tab', () => import('../pages/project.tsx'), 'ProjectPage'),
  at('/deployments/$id', () => import('../pages/deployment.tsx'), 'DeploymentPage'),
  at('/runs/$id', () => import('../pages/run.tsx'), 'RunPage'),
  at('/nodes', () => import('../pages/nodes.tsx'), 'NodesPage'),
  at('/nodes/$name', () => import('../pages/node.tsx'), 'NodePage'),
  at('/datasets', () => import('../pages/datasets.tsx'), 'DatasetsPage'),
  at('/datasets/$name', () => import('../pages/dataset.tsx'), 'DatasetPage'),
  at('/routes', () => import('../pages/routes.tsx'), 'RoutesPage'),
  at('/activity', () => import('../pages/activity.tsx'), 'ActivityPage'),
  at('/notifications', () => import('../pages/notifications.tsx'), 'NotificationsPage'),
  at('/people', () => import('../pages/people.tsx'), 'PeoplePage'),
  at('/system', () => import('../pages/system.tsx'), 'SystemPage'),
  at('/account', () => import('../pages/account.tsx'), 'AccountPage'),
];

export const router = createRouter({
  routeTree: root.addChildren(routes),
  defaultPreload: 'intent',
  defaultPendingComponent: () => <Waiting what="the page" />,
  defaultErrorComponent: ({ error }) =>
    error instanceof ApiError && error.status === 404 ? (
      <NotFound />
    ) : (
      <Problem error={error} what="This page" again={() => location.reload()} />
    ),
  scrollRestoration: true,
  // Keep search values as text: `?n=1` is "1".
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const text = new URLSearchParams(
      Object.entries(search).flatMap(([key, value]) =>
        value === undefined || value === '' ? [] : [[key, String(value)]],
      ),
    ).toString();
    return text === '' ? '' : `?${text}`;
  },
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
  interface HistoryState {
    /** The reason why the first deployment of a new project did not begin. */
    notDeployed?: string;
  }
}
