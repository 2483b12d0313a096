/** Maps an event to the routes whose answers it can change. */
import type { RouteName } from '@berth/wire/routes';

const BY_NOUN: Readonly<Record<string, readonly RouteName[]>> = {
  deployment: [
    'listDeployments',
    'projectDeployments',
    'getDeployment',
    'listInstances',
    'projectPlacement',
    'listProjects',
    'getProject',
    'listNodes',
    'getNode',
  ],
  project: [
    'listProjects',
    'getProject',
    'listSecrets',
    'projectDomains',
    'getHook',
    'listDeliveries',
    'placement',
    'projectDataCopies',
    'listInstances',
    'getDeployment',
    'projectPlacement',
  ],
  node: [
    'listNodes',
    'getNode',
    'nodeDisk',
    'cacheRoom',
    'placement',
    'nodeVolumes',
    'projectDataCopies',
    'listInstances',
  ],
  dataset: [
    'listDatasets',
    'getDataset',
    'datasetVersions',
    'datasetHistory',
    'datasetDiff',
    'placement',
    'projectDataCopies',
  ],
  user: ['listUsers', 'me', 'listTokens'],
  hook: ['getHook', 'listDeliveries'],
  notification: ['listNotifications', 'getNotification', 'listNotificationDeliveries'],
  certificate: ['getProject', 'listProjects', 'projectDomains'],
  domain: ['projectDomains', 'getProject'],
  clean: ['cleanUps'],
};

/**
 * Returns the routes whose answers an event of this kind can change, or null for an unknown kind,
 * which can change all answers.
 */
export function routesOf(kind: string): readonly RouteName[] | null {
  return BY_NOUN[kind.split('.')[0] ?? ''] ?? null;
}
