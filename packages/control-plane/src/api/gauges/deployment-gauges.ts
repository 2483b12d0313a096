/** Gauges of deployments. */
import { DEPLOYMENT_STATES, HEALTH_STATES, isSettled } from '@berth/wire/vocabulary';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { MetricsStore } from '../../domain/platform/metrics-store.ts';
import type { GaugeRow } from './gauge-row.ts';

export type Deps = {
  metrics: Pick<MetricsStore, 'oldestUnsettled' | 'running'>;
  deployments: Pick<DeploymentStore, 'countByStatus'>;
  now: () => number;
};

export const deploymentGauges = ({ metrics, deployments, now }: Deps): GaugeRow[] => [
  {
    name: 'berth_deployment_oldest_seconds',
    help: 'Age of the oldest deployment in each state that is not settled; 0 if there is none',
    labels: ['status'],
    async read() {
      const oldest = await metrics.oldestUnsettled();
      return DEPLOYMENT_STATES.filter((status) => !isSettled(status)).map((status) => {
        const createdAt = oldest.find((row) => row.status === status)?.created_at ?? now();
        return { labels: { status }, value: Math.max(0, now() - createdAt) / 1000 };
      });
    },
  },
  {
    name: 'berth_deployments_running',
    help: 'Running deployments by the health that their nodes reported; `none`: no report yet',
    labels: ['health'],
    async read() {
      const running = await metrics.running();
      return [...HEALTH_STATES, 'none'].map((health) => ({
        labels: { health },
        value: running.find((r) => (r.health ?? 'none') === health)?.count ?? 0,
      }));
    },
  },
  {
    name: 'berth_deployments',
    help: 'Deployments by status, without those of deleted projects',
    labels: ['status'],
    async read() {
      const counts = await deployments.countByStatus();
      return DEPLOYMENT_STATES.map((status) => ({
        labels: { status },
        value: counts.get(status) ?? 0,
      }));
    },
  },
];
