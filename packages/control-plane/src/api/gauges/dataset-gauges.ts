/** Gauges of datasets. */
import { DATASET_STATES } from '@berth/wire/dataset';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type { GaugeRow } from './gauge-row.ts';

/** Maximum number of series in a metric with one series for each dataset. */
const MAX_DATASETS = 200;

export type Deps = {
  datasets: Pick<DatasetStore, 'overview'>;
  /** DATASET_SCAN_INTERVAL. */
  scanIntervalMs: number;
};

export const datasetGauges = ({ datasets, scanIntervalMs }: Deps): GaugeRow[] => [
  {
    name: 'berth_dataset_scan_interval_seconds',
    help: 'DATASET_SCAN_INTERVAL',
    labels: [],
    read: () => [{ labels: {}, value: scanIntervalMs / 1000 }],
  },
  {
    name: 'berth_datasets',
    help: 'Datasets by status after their last scan',
    labels: ['status'],
    async read() {
      const all = await datasets.overview();
      return DATASET_STATES.map((status) => ({
        labels: { status },
        value: all.filter((d) => d.status === status).length,
      }));
    },
  },
  {
    name: 'berth_dataset_last_scan_timestamp_seconds',
    help:
      `Time of the last scan of a dataset, with any outcome; only the ${MAX_DATASETS} with the ` +
      'oldest scan; 0 if there was none',
    labels: ['dataset'],
    async read() {
      const all = await datasets.overview();
      const oldest = all
        .map(({ name, last_scanned_at: at }) => ({ name, at: at ?? 0 }))
        .sort((a, b) => a.at - b.at);
      return oldest
        .slice(0, MAX_DATASETS)
        .map(({ name, at }) => ({ labels: { dataset: name }, value: at / 1000 }));
    },
  },
];
