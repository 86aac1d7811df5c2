// The parts of Apache ECharts that src/medallion/cli/page/page.js uses.
import { init, use } from "echarts/core";
import { BarChart, GraphChart, LineChart, SankeyChart } from "echarts/charts";
import { AriaComponent, GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([BarChart, GraphChart, LineChart, SankeyChart, AriaComponent, GridComponent, LegendComponent, TooltipComponent, SVGRenderer]);

export { init };
