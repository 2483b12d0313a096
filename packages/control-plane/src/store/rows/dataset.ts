import type { DatasetRecord } from '../../domain/platform/records.ts';
import type { Row } from '../engine/tables.ts';

export const datasetOf = (row: Row<'datasets'>): DatasetRecord => ({
  ...row,
  skipped: JSON.parse(row.skipped) as DatasetRecord['skipped'],
  share: row.share === null ? null : (JSON.parse(row.share) as DatasetRecord['share']),
  scan_full: row.scan_full !== 0,
  accept_loss: row.accept_loss !== 0,
});
